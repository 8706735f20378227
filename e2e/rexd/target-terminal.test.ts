import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { after, before, test, type TestContext } from 'node:test'

import { connect, stdio } from '../../src/sdk/entry.ts'
import { CuttableProxy } from '../../test/support/cuttable-proxy.ts'
import { MeshOfDaemons, isRunning, until, type TestDaemon } from '../../test/support/mesh-of-daemons.ts'
import { acquaint, proxiedPair } from '../../test/support/proxied-pair.ts'
import { rexdCommand } from '../../test/support/rexd-command.ts'
import { watching } from '../../test/support/terminal-text.ts'
import type { Params, Peer } from './peer.ts'
import type { ProcessLog } from './process-log.ts'
import { Home, type ConfigOptions } from './server.ts'
import { overStdio } from './transports.ts'

// Terminals in a session for another agent. They are runs of the mesh on a terminal, which the ACL of that agent permits or denies.

const MIB = 1024 * 1024
const PASTE = 3 * MIB
const CUTS = 5
const [ESC, BEL] = ['\u001b', '\u0007']
const CONFIG: ConfigOptions = { security: ['allow_targets = ["bob"]', 'allow_pty = true'] }

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let programs: Record<'takes' | 'ignores' | 'hears', string>

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  programs = {
    takes: await mesh.program('takes', `stty raw -echo; echo ready; head -c ${PASTE} | sha256sum`),
    ignores: await mesh.program('ignores', 'stty raw -echo; echo ready; read over; echo over'),
    hears: await mesh.program('hears', 'trap "echo heard; exit 7" HUP; echo ready; while :; do sleep 0.1; done'),
  }
  await alice.start()
  await bob.writeAcl([
    { agent: alice, commands: [['sh'], ['cat'], ...Object.values(programs).map((path) => [path])], terminals: true },
    { agent: alice, commands: [['tty']] },
    { agent: alice, commands: [['bash']], terminals: true, commandKeys: 'record = true\nwatch = true' },
  ])
  await bob.start()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
})

after(async () => mesh.stop())

interface Opened {
  readonly pty_id: string
  readonly log: ProcessLog
}

/** A client with one session for bob. */
class Client {
  readonly peer: Peer
  readonly session_id: string

  private constructor(peer: Peer, session_id: string) {
    this.peer = peer
    this.session_id = session_id
  }

  static async open(t: TestContext, daemon: TestDaemon, config = CONFIG): Promise<Client> {
    const peer = await overStdio.open(t, config, { X0X_DATA_DIR: daemon.dir })
    return new Client(peer, String((await peer.call('session.open', { client_name: 'test', target: 'bob' }))['session_id']))
  }

  async call(method: string, params: Params): Promise<Params> {
    return this.peer.call(method, { session_id: this.session_id, ...params })
  }

  async terminal(argv: readonly string[], params: Params = {}): Promise<Opened> {
    const { pty_id, process_id } = await this.call('pty.open', { argv, ...params })
    return { pty_id: String(pty_id), log: this.peer.log(process_id) }
  }

  /** Types all data as fast as it is accepted. Returns the number of incomplete writes. */
  async type({ pty_id }: Opened, data: Uint8Array): Promise<number> {
    let short = 0
    for (let at = 0; at < data.length;) {
      const part = data.subarray(at, at + 512 * 1024)
      const { accepted_bytes } = await this.call('pty.input', { pty_id, data: Buffer.from(part).toString('base64'), encoding: 'base64' })
      if (Number(accepted_bytes) < part.length) {
        short += 1
        await new Promise((resolve) => setImmediate(resolve))
      }
      at += Number(accepted_bytes)
    }
    return short
  }

  async shows({ log }: Opened, text: string | RegExp): Promise<void> {
    const isShown = (): boolean =>
      typeof text === 'string' ? log.stdout.toString('latin1').includes(text) : text.test(log.stdout.toString('latin1'))
    await until(`it shows ${String(text)}: ${JSON.stringify(log.stdout.toString('latin1').slice(-300))}`, isShown)
  }
}

test('a terminal of another agent accepts input and resizes, and returns the exit status of its program', async (t) => {
  const client = await Client.open(t, alice)
  const shell = await client.terminal(['sh'], { cols: 91, rows: 33 })
  await client.type(shell, Buffer.from('stty size; echo $TERM\n'))
  await client.shows(shell, /33 91\r\nxterm-256color\r\n/)
  assert.deepEqual(await client.call('pty.resize', { pty_id: shell.pty_id, cols: 40, rows: 12 }), { ok: true })
  await client.type(shell, Buffer.from('sleep 0.1; stty size\n'))
  await client.shows(shell, '12 40\r\n')
  // REXD allows larger terminals than the mesh.
  await client.call('pty.resize', { pty_id: shell.pty_id, cols: 65_535, rows: 65_535 })
  await client.type(shell, Buffer.from('sleep 0.1; stty size\n'))
  await client.shows(shell, '1000 1000\r\n')
  await client.type(shell, Buffer.from('exit 7\n'))
  const { exit_code, signal, bytes_stderr } = await shell.log.exit
  assert.deepEqual([exit_code, signal, bytes_stderr], [7, null, 0])
  const requests = (await client.peer.home.journal()).filter(({ event }) => event === 'request')
  assert.deepEqual([requests[0]?.['target'], requests[0]?.['terminal'], requests[0]?.['argv']], ['bob', true, ['sh']])
  const asked = (await bob.journal()).filter(({ event, argv }) => event === 'request' && String(argv) === 'sh')
  assert.equal(asked.at(-1)?.['terminal'], true)
  await client.peer.close()
})

test('a terminal needs pty in the configuration and terminal = true in the ACL of the target', async (t) => {
  const ungranted = await Client.open(t, alice, { security: ['allow_targets = ["bob"]'] })
  const missing = await ungranted.peer.failure(-32_007, 'pty.open', { session_id: ungranted.session_id, argv: ['sh'] })
  assert.equal(missing.data['capability'], 'pty')
  assert.match(missing.message, /security\.allow_pty grants it/)
  await ungranted.peer.close()
  const client = await Client.open(t, alice)
  const { session_id, peer } = client
  const denied = await peer.failure(-32_001, 'pty.open', { session_id, argv: ['tty'] })
  assert.deepEqual([denied.data['reason'], denied.data['target']], ['terminal_not_allowed', 'bob'])
  // Over the same link, the command runs without a terminal, and another command runs on a terminal.
  const plain = await client.call('exec.start', { argv: ['tty'] })
  assert.equal((await peer.log(plain['process_id']).exit)['exit_code'], 1)
  const shell = await client.terminal(['sh'])
  await client.type(shell, Buffer.from('exit 7\n'))
  assert.equal((await shell.log.exit)['exit_code'], 7)
  // A session without pty sends no request to bob.
  const asked = async (): Promise<number> => (await bob.journal()).filter(({ argv }) => String(argv) === 'sh').length
  const before = await asked()
  const narrow = await peer.call('session.open', { client_name: 'test', target: 'bob', requested_capabilities: ['exec'] })
  const lacking = await peer.failure(-32_007, 'pty.open', { session_id: narrow['session_id'], argv: ['sh'] })
  assert.equal(lacking.data['capability'], 'pty')
  assert.equal(await asked(), before)
  for (const [params, capability] of [
    [{ shell: true, command: 'id', argv: undefined }, 'exec.shell'],
    [{ cwd: '/' }, 'cwd'],
    [{ env: { CI: '1' } }, 'env'],
  ] as const) {
    const refusal = await peer.failure(-32_007, 'pty.open', { session_id, argv: ['sh'], ...params })
    assert.equal(refusal.data['capability'], capability)
  }
  await peer.close()
})

test('the answer says that the target records the command and that its operators may watch', async (t) => {
  const client = await Client.open(t, alice)
  const both = ['session_recorded', 'session_watchable']
  assert.deepEqual((await client.call('pty.open', { argv: ['bash'] }))['notices'], both)
  assert.deepEqual((await client.call('exec.start', { argv: ['bash'] }))['notices'], both)
  assert.equal('notices' in (await client.call('pty.open', { argv: ['sh'] })), false)
  await client.peer.close()
})

test('a large paste waits for the program and arrives unchanged', async (t) => {
  const client = await Client.open(t, alice)
  const terminal = await client.terminal([programs.takes])
  await client.shows(terminal, 'ready')
  const data = randomBytes(PASTE)
  const short = await client.type(terminal, data)
  assert.ok(short > 0, 'all was taken at once')
  await client.shows(terminal, createHash('sha256').update(data).digest('hex'))
  assert.equal((await terminal.log.exit)['exit_code'], 0)
  await client.peer.close()
})

test('a program that does not read gets only what the buffers hold, and pty.close sends it SIGHUP', async (t) => {
  const client = await Client.open(t, alice)
  const terminal = await client.terminal([programs.ignores])
  await client.shows(terminal, 'ready')
  let taken = 0
  for (let accepted = 1; accepted > 0;) {
    const data = 'x'.repeat(256 * 1024)
    accepted = Number((await client.call('pty.input', { pty_id: terminal.pty_id, data }))['accepted_bytes'])
    taken += accepted
  }
  assert.ok(taken <= 4 * MIB, `${taken} bytes were taken`)
  // None of these calls waits for the program, and only the last size stays.
  for (let time = 0; time < 1_000; time++) await client.call('pty.resize', { pty_id: terminal.pty_id, cols: 80, rows: 1 + (time % 50) })
  assert.deepEqual(await client.call('pty.close', { pty_id: terminal.pty_id }), { ok: true })
  assert.equal((await terminal.log.exit)['signal'], 'SIGHUP')
  await client.peer.close()
})

test('pty.close, the end of the session and the end of the client hang up the program', async (t) => {
  const client = await Client.open(t, alice)
  const heard = await client.terminal([programs.hears])
  await client.shows(heard, 'ready')
  await client.call('pty.close', { pty_id: heard.pty_id, kill: false })
  assert.equal((await heard.log.exit)['exit_code'], 7)
  const other = await client.terminal([programs.hears])
  await client.shows(other, 'ready')
  assert.deepEqual(await client.call('session.close', {}), { ok: true, terminated: 1 })
  assert.equal((await other.log.exit)['exit_code'], 7)
  const left = await Client.open(t, alice)
  await left.shows(await left.terminal(['cat']), '')
  const pid = await until('it is in the journal', async () => {
    const started = (await bob.journal()).findLast(({ event }) => event === 'started')
    return Number(started?.['pid']) || null
  })
  left.peer.process.child.kill('SIGKILL')
  await until('it has ended', () => !isRunning(pid), 30_000)
  await until('nothing runs on bob', async () => (await bob.diagnostics()).active_sessions === 0)
})

test('input over a path that is cut repeatedly arrives once', async (t) => {
  const stage = await proxiedPair(t, (port) => new CuttableProxy(port))
  await acquaint(stage, [['cat']], '', true)
  const client = await Client.open(t, stage.alice)
  const terminal = await client.terminal(['cat'])
  const countOf = (text: string): number =>
    terminal.log.stdout
      .toString()
      .split('\r\n')
      .filter((line) => line === text).length
  for (let at = 0; at <= CUTS; at++) {
    await client.type(terminal, Buffer.from(`before ${at}\n`))
    if (at > 0) stage.proxy.cut()
    await client.type(terminal, Buffer.from(`line ${at}\n`))
    await until(`line ${at} is written`, () => countOf(`line ${at}`) >= 2)
  }
  await client.type(terminal, Buffer.from('\u0004'))
  assert.equal((await terminal.log.exit)['exit_code'], 0)
  for (let at = 0; at <= CUTS; at++) for (const text of [`before ${at}`, `line ${at}`]) assert.equal(countOf(text), 2, text)
  await client.peer.close()
})

test('the SDK opens a terminal of another agent and transfers raw bytes in both directions', async (t) => {
  const home = await Home.create()
  t.after(async () => home.remove())
  await home.configure(CONFIG)
  const command = [...rexdCommand(), '--stdio', '--config', home.configFile]
  const client = await connect({ transport: stdio({ command, env: { ...process.env, X0X_DATA_DIR: alice.dir } }) })
  t.after(async () => client.close())
  const session = await client.open({ clientName: 'test', target: 'bob' })
  const terminal = await session.openTerminal(['sh'], { cols: 80, rows: 24 })
  const shows = watching(terminal)
  await terminal.write("stty raw -echo; printf '\\033]0;title\\007'; printf ready; head -c 3 | od -An -tx1; exit 4\n")
  // The client is a program, so escape sequences are not filtered.
  await shows(new RegExp(`${ESC}\\]0;title${BEL}ready`))
  await terminal.write(new Uint8Array([0, 0xff, 0x1b]))
  await shows(/00 ff 1b/)
  assert.equal((await terminal.exited).exitCode, 4)
})
