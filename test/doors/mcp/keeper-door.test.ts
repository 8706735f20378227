import assert from 'node:assert/strict'
import { once } from 'node:events'
import { chmod, mkdir } from 'node:fs/promises'
import { connect, createServer } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { NEVER } from '../../../src/base/abortable.ts'
import type { Timer } from '../../../src/base/clock.ts'
import { execStatus } from '../../../src/doors/mcp/exec-tools.ts'
import { KeeperDoor } from '../../../src/doors/mcp/keeper-door.ts'
import { stayingTools } from '../../../src/doors/mcp/staying-tools.ts'
import type { ToolContext } from '../../../src/doors/mcp/tool.ts'
import { KeeperLink } from '../../../src/local-api/keeper-link.ts'
import { lifecycleText, type LifecycleEvent } from '../../../src/protocol/lifecycle.ts'
import { CAPABILITY_NAMES } from '../../../src/protocol/rexd-names.ts'
import { KEEPER_IDLE_MS, KEEPER_LATE_MS, MAX_KEEPER_CONNECTIONS } from '../../../src/protocol/tool-limits.ts'
import { LocalHost, soon } from '../../support/local-engine.ts'
import { newLifecycleLog } from '../../support/lifecycle.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { silent } from '../../support/processes.ts'
import { tempDir } from '../../support/temp-dir.ts'

/** Says how often it was asked for a timer. */
class CountingClock extends ManualClock {
  timers = 0

  override setTimeout(callback: () => void, ms: number): Timer {
    this.timers += 1
    return super.setTimeout(callback, ms)
  }
}

/** A keeper of a host behind a clock that stands still, and a way to it. */
const keeperOf = async (t: TestContext) => {
  const host = await LocalHost.start(t, {
    amend: (policy) => ({ ...policy, granted: new Set([...policy.granted, 'exec.detach' as const]) }),
  })
  const [clock, directory] = [new CountingClock(), await tempDir(t)]
  const path = join(directory, 'own', 'keeper.sock')
  await mkdir(join(directory, 'own'), { mode: 0o700 })
  const door = new KeeperDoor(
    { executor: host.executor, clock, log: silent },
    { caller: { door: 'mcp', client_name: 'a test', available: [...CAPABILITY_NAMES] }, outdated: async () => null },
  )
  await door.start(path)
  let over = false
  const ended = door.ended(NEVER).then(() => (over = true))
  const heard: LifecycleEvent[] = []
  const link = new KeeperLink({ dial: async () => connect(path), told: (event) => void heard.push(event) })
  t.after(async () => {
    link.close()
    const closing = door.close()
    // What it waits for is over, or ends with the connections.
    assert.ok(await soon(async () => (await clock.advance(KEEPER_IDLE_MS), over)))
    await Promise.all([closing, ended])
  })
  const call = async (name: string, args: Record<string, unknown>) => {
    const answer = await link.call({ name, args, signal: NEVER, isGone: () => false, progress: () => undefined }, { starts: false })
    answer?.taken()
    return answer?.result['structuredContent'] as Record<string, unknown>
  }
  return { door, clock, path, link, call, heard, isOver: () => over }
}

test('a keeper ends when nothing has run and nobody was connected for its time, and not before', async (t) => {
  const { clock, link, call, isOver } = await keeperOf(t)
  const { run_id } = await call('exec_status', {
    command: 'sh',
    args: ['-c', 'echo begun; exec sleep 300'],
    timeout_seconds: 600,
    answer_within_ms: 0,
  })
  const written = async () => ((await call('exec_list', {}))['runs'] as { stdout_bytes: number }[])[0]?.stdout_bytes
  assert.ok(await soon(async () => (await written()) === 6))
  await clock.advance(2 * KEEPER_IDLE_MS)
  assert.ok(!isOver(), 'a command runs')
  const killed = await call('exec_kill', { run_id })
  assert.deepEqual([killed['state'], killed['signal'], killed['interruption'], killed['launch_error']], ['ended', 'SIGTERM', null, null])
  await clock.advance(2 * KEEPER_IDLE_MS)
  assert.ok(!isOver(), 'somebody is connected')
  const before = clock.timers
  link.close()
  assert.ok(await soon(() => clock.timers > before))
  await clock.advance(KEEPER_IDLE_MS - 1)
  assert.ok(!isOver(), 'what has ended can be asked for until then')
  await clock.advance(1)
  assert.ok(await soon(isOver))
})

test('what becomes of a command that stays is told to each server of its caller, and what is no event is told to nobody', async (t) => {
  const { path, call, heard } = await keeperOf(t)
  let said = ''
  const other = connect(path).on('data', (part) => (said += part.toString()))
  await once(other, 'connect')
  await call('exec_status', { command: 'echo', args: ['hello'] })
  assert.ok(await soon(() => heard.length === 2 && said.includes('exec.finished')))
  const [run_id, log] = [heard[0]?.run_id ?? '', newLifecycleLog()]
  log.add(heard[0] ?? assert.fail())
  assert.deepEqual(
    heard.map((event) => [lifecycleText(event), event.tail]),
    [
      [`Exec started (node=gateway, id=${run_id})`, null],
      [`Exec finished (node=gateway, id=${run_id}, code=0)`, 'hello\n'],
    ],
  )
  const again = log.add(heard[1] ?? assert.fail())
  assert.deepEqual(again, { ...heard[1], n: 2 }, 'it keeps its time, and has a number of the log')
  assert.equal(said.split('\n').filter((line) => line.includes('"method":"notifications/x0x/event"')).length, 2)
  other.destroy()

  // A keeper of another version.
  const bad = join(await tempDir(t), 'keeper.sock')
  const lines = [{ ...again, type: 'exec.lied' }, { ...again, tail: 1 }, 1, again]
  const server = createServer((socket) => {
    for (const params of lines) socket.write(`${JSON.stringify({ jsonrpc: '2.0', method: 'notifications/x0x/event', params })}\n`)
    socket.write(`${JSON.stringify({ jsonrpc: '2.0', id: 1, result: {} })}\n`)
    socket.on('error', () => undefined).resume()
  }).listen(bad)
  await once(server, 'listening')
  const told: LifecycleEvent[] = []
  const link = new KeeperLink({ dial: async () => connect(bad), told: (event) => void told.push(event) })
  t.after(() => (link.close(), server.close()))
  const asked = { name: 'exec_list', args: {}, signal: NEVER, isGone: () => true, progress: () => undefined }
  const answered = link.call(asked, { starts: false })
  assert.ok(await soon(() => told.length === 1))
  ;(await answered)?.taken()
  assert.deepEqual(told, [again])
})

test('as many may be connected to a keeper as may be, and one more is hung up', async (t) => {
  const { path, call } = await keeperOf(t)
  const all = Array.from({ length: MAX_KEEPER_CONNECTIONS }, () => connect(path))
  await Promise.all(all.map(async (socket) => once(socket, 'connect')))
  const more = connect(path)
  more.on('error', () => undefined).resume()
  await once(more, 'close')
  for (const socket of all) socket.destroy()
  await Promise.all(all.map(async (socket) => once(socket, 'close')))
  assert.ok(
    await soon(async () =>
      call('exec_list', {}).then(
        ({ runs }) => Array.isArray(runs),
        () => false,
      ),
    ),
  )
})

test('a keeper listens in no directory that others may enter', async (t) => {
  const directory = await tempDir(t)
  const host = await LocalHost.start(t)
  const caller = { door: 'mcp' as const, client_name: 'a test', available: [] }
  const door = new KeeperDoor({ executor: host.executor, clock: new ManualClock(), log: silent }, { caller, outdated: async () => null })
  await chmod(directory, 0o750)
  await assert.rejects(door.start(join(directory, 'keeper.sock')), { code: 'loose_permissions' })
})

/** What a keeper hears that answers nothing, and a call of a tool whose command stays there. */
const silentKeeper = async (t: TestContext) => {
  const [clock, path] = [new ManualClock(), join(await tempDir(t), 'keeper.sock')]
  let heard = ''
  const server = createServer((socket) => socket.on('data', (part) => (heard += part.toString())).on('error', () => undefined))
  server.listen(path)
  await once(server, 'listening')
  const link = new KeeperLink({ dial: async () => connect(path) })
  t.after(() => (link.close(), server.close()))
  const context = { clock, answerWithinMs: 1_000, isGone: () => false } as unknown as ToolContext
  const [tool = assert.fail('there is a tool')] = stayingTools([execStatus], link)
  const call = async (signal = NEVER) => tool.call({ command: 'true', stay: true }, context, { signal, progress: () => undefined })
  return { clock, call, heard: () => heard }
}

test('a call is answered although the keeper does not answer, and its command is not cancelled', async (t) => {
  const { clock, call, heard } = await silentKeeper(t)
  const calls = [call(), call()]
  const all = Promise.allSettled(calls)
  assert.ok(await soon(() => heard().split('tools/call').length === 3))
  let over = false
  void all.then(() => (over = true))
  await clock.advance(1_000 + KEEPER_LATE_MS - 1)
  assert.ok(!over)
  await clock.advance(1)
  for (const one of calls) await assert.rejects(one, { code: 'timeout', message: /the keeper of what stays does not answer/ })
  assert.doesNotMatch(heard(), /notifications\/cancelled/)
  // Who cancels does end it.
  const cancelling = new AbortController()
  const cancelled = call(cancelling.signal)
  assert.ok(await soon(() => heard().split('tools/call').length === 4))
  cancelling.abort(new Error('cancelled'))
  await assert.rejects(cancelled, /cancelled/)
  assert.ok(await soon(() => heard().includes('notifications/cancelled')))
})

test('a call that is cancelled while a keeper is being started waits for it no longer, nor do those behind it start one', async () => {
  let dials = 0
  const { promise: never } = Promise.withResolvers<null>()
  const link = new KeeperLink({ dial: async () => ((dials += 1), never) })
  const cancelling = new AbortController()
  const options = { name: 'exec_status', args: {}, signal: cancelling.signal, isGone: () => false, progress: () => undefined }
  const calls = [link.call(options, { starts: true }), link.call(options, { starts: true })]
  assert.ok(await soon(() => dials === 1))
  cancelling.abort(new Error('cancelled'))
  for (const one of calls) await assert.rejects(one, /cancelled/)
  assert.equal(dials, 1)
  link.close()
})
