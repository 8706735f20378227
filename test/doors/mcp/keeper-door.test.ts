import assert from 'node:assert/strict'
import { once } from 'node:events'
import { chmod, mkdir } from 'node:fs/promises'
import { connect } from 'node:net'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'

import { NEVER } from '../../../src/base/abortable.ts'
import type { Timer } from '../../../src/base/clock.ts'
import { KeeperDoor } from '../../../src/doors/mcp/keeper-door.ts'
import { KeeperLink } from '../../../src/local-api/keeper-link.ts'
import { CAPABILITY_NAMES } from '../../../src/protocol/rexd-names.ts'
import { KEEPER_IDLE_MS, MAX_KEEPER_CONNECTIONS } from '../../../src/protocol/tool-limits.ts'
import { LocalHost, soon } from '../../support/local-engine.ts'
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
  const link = new KeeperLink({ dial: async () => connect(path) })
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
  return { door, clock, path, link, call, isOver: () => over }
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
