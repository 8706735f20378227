import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { readdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'
import { fileURLToPath } from 'node:url'

import { localMarksOf } from '../../src/journal/running-marks.ts'
import { MAX_RPC_PENDING } from '../../src/protocol/limits/rexd.ts'
import { WatchingHuman } from '../../test/support/mesh-approvals.ts'
import { aliceBobCharlie, MeshOfDaemons, until, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import type { Params, Peer, Reply, Result } from './peer.ts'
import type { ConfigOptions } from './server.ts'
import { overStdio } from './transports.ts'

// Sessions for another agent. Their commands are runs of the mesh, which the ACL of that agent permits or denies.

/** A command that needs the approval of bob's approver. */
const ASKED = ['echo', 'asked']
const FOLLOW = ['tail', '-n', '3', '-f', '/etc/passwd']
const REXD = fileURLToPath(new URL('../../deploy/bin/rexd.mjs', import.meta.url))

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon

before(async () => {
  mesh = await MeshOfDaemons.create()
  const commands = [['echo', '<INT>'], ['sha256sum'], ['sleep', '<INT>'], ['seq', '<INT>'], ['false'], FOLLOW]
  ;({ alice, bob } = await aliceBobCharlie(mesh, commands, '', [ASKED]))
})

after(async () => mesh.stop())

const TARGETS: ConfigOptions = {
  security: ['allow_targets = ["bob", "nobody"]', 'allow_shell = true', 'allow_pty = true', 'allow_env = ["CI"]'],
}

/** A server next to the daemon of alice. */
const beside = async (t: Parameters<typeof overStdio.open>[0], options: ConfigOptions = TARGETS): Promise<Peer> =>
  overStdio.open(t, options, { X0X_DATA_DIR: alice.dir })

const openFor = async (peer: Peer, target: string, params: Params = {}): Promise<Result> =>
  peer.call('session.open', { client_name: 'test', target, ...params })

const sessionFor = async (peer: Peer, target = 'bob', params: Params = {}): Promise<string> =>
  String((await openFor(peer, target, params))['session_id'])

/** Starts a command and waits for its end. */
const run = async (peer: Peer, session_id: string, argv: readonly string[], params: Params = {}) => {
  const started = await peer.call('exec.start', { session_id, argv, ...params })
  assert.deepEqual(Object.keys(started).toSorted(), ['max_output_bytes', 'process_id', 'started_at', 'timeout_ms'])
  const { process_id } = started
  const log = peer.log(process_id)
  await log.exit
  return { log, process_id, status: await peer.call('exec.wait', { session_id, process_id }) }
}

test('a command in a session for another agent runs on that agent, with its stdin, output and exit code', async (t) => {
  const peer = await beside(t)
  const opened = await openFor(peer, 'bob')
  assert.deepEqual(
    [opened['target'], opened['workspace_roots'], opened['capabilities']],
    ['bob', [], ['exec', 'fs.read', 'events', 'pty', 'fs.write', 'fs']],
  )
  const session_id = String(opened['session_id'])
  const { log, status } = await run(peer, session_id, ['echo', '42'])
  assert.equal(log.stdout.toString(), '42\n')
  assert.deepEqual([status['status'], status['exit_code'], status['bytes_stdout']], ['exited', 0, 3])
  assert.equal((await run(peer, session_id, ['false'])).status['exit_code'], 1)
  const stdin = 'x'.repeat(300_000)
  const sum = await run(peer, session_id, ['sha256sum'], { stdin })
  assert.equal(sum.log.stdout.toString(), `${createHash('sha256').update(stdin).digest('hex')}  -\n`)
  const started = (await bob.journal()).filter(({ event }) => event === 'started')
  assert.equal(started.length, 3)
  const info = await peer.call<{ processes: { cwd: null; argv: string[] }[]; target: string; cwd: null }>('session.info', { session_id })
  assert.deepEqual([info.target, info.cwd, info.processes.map(({ cwd }) => cwd)], ['bob', null, [null, null, null]])
  await peer.close()
})

test('rexd exec runs a command on another agent with its stdin', async (t) => {
  const peer = await beside(t)
  const stdin = 'x'.repeat(100_000)
  const env = { ...process.env, X0X_DATA_DIR: alice.dir }
  const asked = ['exec', '--config', peer.home.configFile, '--target', 'bob', '--stdin', '--', 'sha256sum']
  const { stdout, status } = spawnSync(process.execPath, [REXD, ...asked], { env, input: stdin })
  assert.deepEqual([status, stdout.toString()], [0, `${createHash('sha256').update(stdin).digest('hex')}  -\n`])
  await peer.close()
})

test('a command that the ACL of the target does not list is denied and logged on both sides', async (t) => {
  const peer = await beside(t)
  const session_id = await sessionFor(peer)
  const { data } = await peer.failure(-32_001, 'exec.start', { session_id, argv: ['cat', '/etc/shadow'] })
  assert.deepEqual([data['code'], data['target'], data['reason']], ['command_denied', 'bob', 'argv_not_allowed'])
  const [refusal] = (await peer.home.refusals()).filter(({ method }) => method === 'exec.start')
  assert.deepEqual([refusal?.['code'], refusal?.['argv']], ['command_denied', ['cat', '/etc/shadow']])
  assert.equal((await bob.journal()).filter(({ event, argv }) => event === 'denial' && String(argv) === 'cat,/etc/shadow').length, 1)
  const requested = (await peer.home.journal()).filter(({ event }) => event === 'request')
  assert.deepEqual(
    requested.map(({ target, argv }) => [target, argv]),
    [['bob', ['cat', '/etc/shadow']]],
  )
  assert.equal(refusal?.['request_id'], requested[0]?.['request_id'])
  await peer.close()
  assert.deepEqual(await readdir(localMarksOf(peer.home.journalFile)), [])
})

test('with tell_waiting a client learns once that its command waits for a remote approver, and exec.kill withdraws it', async (t) => {
  const peer = await beside(t)
  const human = await WatchingHuman.at(bob)
  const session_id = await sessionFor(peer)
  const here = String((await peer.call('session.open', { client_name: 'test' }))['session_id'])
  const start = async (params: Params = {}) => {
    const asked = peer.ask('exec.start', { session_id, argv: ASKED, ...params })
    return { asked, pending: await human.next() }
  }
  const wait = async (): Promise<Params> => until('it is told', () => peer.waits[0] ?? null)
  const { asked, pending } = await start({ tell_waiting: true })
  const told = await wait()
  assert.deepEqual([told['session_id'], told['question_id']], [session_id, null])
  assert.ok(Number(told['expires_in_ms']) > 60_000 && Number(told['expires_in_ms']) <= 120_000)
  await human.decide(pending, 'allow_once')
  const { result } = await asked
  assert.equal(result?.['process_id'], told['process_id'])
  assert.equal(peer.waits.splice(0).length, 1)
  const log = peer.log(result?.['process_id'])
  await log.exit
  assert.equal(log.stdout.toString(), 'asked\n')
  const taken = await start({ tell_waiting: true })
  const { process_id } = await wait()
  peer.waits.splice(0)
  await peer.failure(-32_005, 'exec.kill', { session_id: here, process_id })
  assert.deepEqual(await peer.call('exec.kill', { session_id, process_id }), { ok: true })
  const { error } = await taken.asked
  assert.deepEqual([error?.code, error?.data['reason']], [-32_006, 'withdrawn'])
  await human.nothingWaits()
  const untold = await start()
  await human.decide(untold.pending, 'deny')
  assert.equal((await untold.asked).error?.data['reason'], 'approval_denied')
  assert.deepEqual(peer.waits, [])
  human.close()
  await peer.close()
})

test('calls that wait for another agent block neither other calls nor other batches', async (t) => {
  const peer = await beside(t, { ...TARGETS, limits: ['max_processes_per_session = 40'] })
  const session_id = await sessionFor(peer)
  const here = String((await peer.call('session.open', { client_name: 'test' }))['session_id'])
  await writeFile(join(peer.home.root, 'large'), 'x'.repeat(100_000))
  // Bob is stopped and answers no request.
  process.kill(bob.pid, 'SIGSTOP')
  let answered = 0
  const started = Array.from({ length: MAX_RPC_PENDING }, async () => {
    await peer.ask('exec.start', { session_id, argv: ['echo', '1'] })
    answered += 1
  })
  assert.ok(await peer.call('session.info', { session_id }))
  assert.equal(answered, 0)
  const request = (id: string, method: string, params: Params) => ({ jsonrpc: '2.0', id, method, params })
  const batch = [
    request('start', 'exec.start', { session_id, argv: ['echo', '2'] }),
    request('read', 'fs.read', { session_id: here, path: 'large' }),
  ]
  peer.raw(JSON.stringify(batch))
  assert.ok(await peer.call('session.info', { session_id }))
  process.kill(bob.pid, 'SIGCONT')
  const [, read] = await peer.stray<Reply[]>()
  assert.equal(read?.error?.data['limit'], 'batch_answer')
  await Promise.all(started)
  await peer.close()
})

test('options that the mesh does not support are refused without a request to the target', async (t) => {
  const peer = await beside(t)
  const session_id = await sessionFor(peer)
  const before = (await bob.diagnostics()).totals['requests_received']
  const argv = ['echo', '1']
  const refused: readonly [string, Params, string][] = [
    ['exec.start', { shell: true, command: 'id' }, 'exec.shell'],
    ['exec.start', { argv, stdin_open: true }, 'exec.input'],
    ['exec.start', { argv, env: { CI: '1' } }, 'env'],
    ['exec.start', { argv, cwd: '/' }, 'cwd'],
    ['exec.start', { argv, detach: true }, 'exec.detach'],
  ]
  for (const [method, params, capability] of refused) {
    const { data, message } = await peer.failure(-32_007, method, { session_id, ...params })
    assert.equal(data['capability'], capability, `${method}: ${message}`)
  }
  assert.equal((await bob.diagnostics()).totals['requests_received'], before)
  await peer.close()
})

test('a remote command is ended by exec.kill, its timeout, the end of its session and the end of its client', async (t) => {
  const peer = await beside(t)
  const session_id = await sessionFor(peer)
  const begin = async (session: string, params: Params = {}): Promise<string> => {
    const { process_id } = await peer.call('exec.start', { session_id: session, argv: ['sleep', '600'], ...params })
    return String(process_id)
  }
  const killed = await begin(session_id)
  await peer.failure(-32_007, 'exec.kill', { session_id, process_id: killed, signal: 'USR1' })
  await peer.failure(-32_602, 'exec.kill', { session_id, process_id: killed, signal: 'NONSENSE' })
  assert.deepEqual(await peer.call('exec.kill', { session_id, process_id: killed }), { ok: true })
  const status = await peer.call('exec.wait', { session_id, process_id: killed })
  assert.deepEqual([status['status'], status['signal']], ['killed', 'SIGTERM'])
  const late = await begin(session_id, { timeout_ms: 1_000 })
  assert.equal((await peer.call('exec.wait', { session_id, process_id: late }))['status'], 'timed_out')
  const other = await sessionFor(peer)
  const closed = peer.log(await begin(other))
  assert.deepEqual(await peer.call('session.close', { session_id: other }), { ok: true, terminated: 1 })
  await closed.exit
  await begin(session_id)
  await peer.close()
  await until('nothing runs on bob', async () => (await bob.diagnostics()).active_sessions === 0)
})
