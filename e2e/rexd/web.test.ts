import assert from 'node:assert/strict'
import { readFile } from 'node:fs/promises'
import { connect as connectTcp } from 'node:net'
import { join } from 'node:path'
import { describe, test, type TestContext } from 'node:test'

import { until } from '../../test/support/processes.ts'
import { connect, outputOf, post } from '../../test/support/rexd-callers.ts'
import {
  cursorOf,
  cursorsOf,
  memoryOf,
  numbersPid,
  numbers,
  numbersText,
  oneTo,
  pollToExit,
  writtenWhenHeld,
} from '../../test/support/rexd-output.ts'
import { gone, pidIn, startRexd, type RexdServer } from '../../test/support/rexd-server.ts'

// `rexd --http` as installed: clients get all output, and all programs end with the server. Authentication and invalid messages are tested
// in `test/doors/rpc/web-*.test.ts`.

const TIMEOUT = { timeout: 60_000 }
const MIB = 1024 * 1024
const expected = numbersText()

const assertWhole = (output: Buffer): void => assert.ok(output.equals(expected), `${output.length} bytes of ${expected.length}`)

const heldUntilAsked = async (t: TestContext, looked: boolean): Promise<void> => {
  const server = await startRexd(t)
  const { session_id } = await post(server, 'session.open', { client_name: 'a' })
  if (looked) await post(server, 'session.events', { session_id, cursor: 0 })
  const { process_id } = await post(server, 'exec.start', { session_id, ...numbers() })
  const written = await writtenWhenHeld(await numbersPid(server))
  // The server keeps 4 MiB of events. They hold somewhat less output, depending on the size of its pieces.
  assert.ok(written >= 3 * MIB && written < expected.length, `${written} bytes were written before anybody asked`)
  const { events, gaps } = await pollToExit(server, session_id, 0)
  assert.deepEqual(gaps, [])
  assert.deepEqual(cursorsOf(events), oneTo(events.length))
  assertWhole(outputOf(events))
  assert.equal(events.at(-1)!.params['bytes_stdout'], expected.length)
  assert.equal((await post(server, 'exec.wait', { session_id, process_id })).exit_code, 0)
}

/** Opens a session that can be resumed, and starts a program that prints numbers. */
const started = async (t: TestContext, server: RexdServer) => {
  const caller = await connect(t, server, { perMessageDeflate: false })
  const { session_id, resume_token } = await caller.call('session.open', { client_name: 'a', resumable: true })
  await caller.call('exec.start', { session_id, ...numbers() })
  return { caller, session_id: session_id as string, resume_token: resume_token as string }
}

const breaks = async (t: TestContext, paused: boolean): Promise<void> => {
  const server = await startRexd(t)
  const { caller, session_id, resume_token } = await started(t, server)
  await caller.until(({ length }) => length > 10)
  if (paused) {
    caller.socket.pause()
    await writtenWhenHeld(await numbersPid(server))
  }
  caller.socket.terminate()
  await caller.closed
  const cursor = cursorOf(caller)
  await writtenWhenHeld(await numbersPid(server))
  const next = await connect(t, server)
  for (const token of ['x', session_id])
    await assert.rejects(next.call('session.resume', { session_id, resume_token: token }), { code: -32_001 })
  const { processes } = await next.call('session.resume', { session_id, resume_token, cursor })
  assert.equal(processes[0].status, 'running')
  await next.exit()
  const events = [...caller.events, ...next.events]
  assert.deepEqual(
    events.filter(({ method }) => method === 'session.gap').map(({ params }) => params),
    [],
  )
  assert.deepEqual(cursorsOf(events), oneTo(events.length))
  assertWhole(outputOf(events))
}

const slowReader = async (t: TestContext): Promise<void> => {
  const server = await startRexd(t)
  const before = await memoryOf(server.pid)
  const callers = await Promise.all([1, 2, 3].map(async () => connect(t, server, { perMessageDeflate: false })))
  const held = async (caller: (typeof callers)[number], name: string): Promise<number> => {
    const { session_id } = await caller.call('session.open', { client_name: 'a' })
    await caller.call('exec.start', { session_id, ...numbers(name) })
    caller.socket.pause()
    return writtenWhenHeld(await numbersPid(server, name))
  }
  for (const written of await Promise.all(callers.map(async (caller, index) => held(caller, `pid-${index}`))))
    assert.ok(written > 0 && written < expected.length, `${written} bytes were written`)
  const grown = (await memoryOf(server.pid)) - before
  assert.ok(grown < 64 * MIB, `${grown} bytes for three callers`)
  for (const caller of callers) caller.socket.resume()
  await Promise.all(callers.map(async (caller) => caller.exit()))
  for (const caller of callers) assertWhole(outputOf(caller.events))
}

/** Starts programs in a session of each kind. Returns the PIDs of all processes of the server. */
const withPrograms = async (t: TestContext, server: RexdServer): Promise<number[]> => {
  const caller = await connect(t, server)
  const own = await caller.call('session.open', { client_name: 'a' })
  const kept = await caller.call('session.open', { client_name: 'a', resumable: true })
  const asked = await post(server, 'session.open', { client_name: 'a' })
  const command = (name: string) => ({ shell: true, command: `echo $$ > ${name}; sleep 1000 & setsid sleep 1000 & wait` })
  await caller.call('exec.start', { session_id: own.session_id, ...command('one') })
  await caller.call('exec.start', { session_id: kept.session_id, ...command('two') })
  await post(server, 'exec.start', { session_id: asked.session_id, ...command('three') })
  const shells = await Promise.all(['one', 'two', 'three'].map(async (name) => pidIn(join(server.root, name))))
  const childrenOf = async (pid: number): Promise<number[]> =>
    (await readFile(`/proc/${pid}/task/${pid}/children`, 'latin1')).split(' ').filter(Boolean).map(Number)
  await until(async () => (await Promise.all(shells.map(childrenOf))).every(({ length }) => length === 2))
  return [...shells, ...(await Promise.all([server.pid, ...shells].map(childrenOf))).flat()]
}

const portIsFree = async ({ port }: RexdServer): Promise<boolean> => {
  const socket = connectTcp(port, '127.0.0.1')
  const free = await new Promise<boolean>((resolve) => {
    socket.once('connect', () => resolve(false))
    socket.once('error', () => resolve(true))
  })
  socket.destroy()
  return free
}

const endedBy = async (t: TestContext, signal: NodeJS.Signals, ended: readonly unknown[]): Promise<void> => {
  const server = await startRexd(t)
  const pids = await withPrograms(t, server)
  assert.ok(pids.length >= 9)
  assert.deepEqual(await server.stop(signal), ended)
  await gone(...pids)
  assert.ok(await portIsFree(server))
}

// Most of the time is spent checking that a held program writes no more.
describe('rexd --http', { concurrency: 3 }, () => {
  for (const looked of [false, true])
    test(
      `a program is held until a client${looked ? ' that has polled events' : ''} asks for its output, and all of it arrives`,
      TIMEOUT,
      async (t) => heldUntilAsked(t, looked),
    )
  for (const [how, paused] of [
    ['reads', false],
    ['has read nothing for long', true],
  ] as const)
    test(`if a connection breaks while its client ${how}, the next connection gets each remaining event once`, TIMEOUT, async (t) =>
      breaks(t, paused),
    )
  test('a client that reads slowly holds its program, and memory of the server stays bounded', TIMEOUT, slowReader)
  for (const [signal, ended] of [
    ['SIGTERM', [143, null]],
    ['SIGINT', [130, null]],
    ['SIGKILL', [null, 'SIGKILL']],
  ] as const)
    test(`${signal} ends every program and frees the port`, TIMEOUT, async (t) => endedBy(t, signal, ended))
})
