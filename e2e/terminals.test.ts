import assert from 'node:assert/strict'
import { createHash, randomBytes } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { readFile, writeFile } from 'node:fs/promises'
import { type ClientRequest, request } from 'node:http'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { CuttableProxy } from '../test/support/cuttable-proxy.ts'
import { MeshOfDaemons, isRunning, processesNaming, until, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { acquaint, proxiedPair } from '../test/support/proxied-pair.ts'
import { response } from '../test/support/rest-server.ts'
import { inTmux, typeLine } from '../test/support/terminal-in-tmux.ts'
import { NO_TMUX, Tmux } from '../test/support/tmux.ts'
import { Typed } from '../test/support/typed-terminal.ts'

// Alice types into a terminal of bob, through a real terminal of tmux and through pipes that check every byte.

const MIB = 1024 * 1024
const PASTE = 10 * MIB
/** The lease of a requester expires after four seconds, and its program then has five seconds to end. */
const GONE_MS = 30_000
const CUTS = 10
const RESIZES = 10_000
/** A duration that no other process has in its arguments. */
const LONG = '7461234'

/** Full-screen programs: their arguments, a text that they show, and the keys that end them. */
const DRAWING = [
  { program: '/usr/bin/vim', argv: ['vim', '-u', 'NONE', '/etc/passwd'], shows: /^root:/, keys: [':', 'q', '!', 'Enter'] },
  { program: '/usr/bin/less', argv: ['less', '/etc/passwd'], shows: /^root:/, keys: ['q'] },
  { program: '/usr/bin/htop', argv: ['htop'], shows: /F10Quit|Quit/, keys: ['q'] },
  { program: '/usr/bin/top', argv: ['top'], shows: /PID\s+USER/, keys: ['q'] },
].filter(({ program }) => existsSync(program))

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
let programs: Record<'killed' | 'hears' | 'floods' | 'takes' | 'ignores', string>

before(async () => {
  mesh = await MeshOfDaemons.create()
  ;[alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  programs = {
    killed: await mesh.program('killed', 'kill -TERM $$; sleep 60'),
    hears: await mesh.program('hears', `trap 'echo hup > ${mesh.root}/heard; exit 1' HUP; echo ready; while :; do sleep 0.1; done`),
    floods: await mesh.program('floods', 'exec yes'),
    takes: await mesh.program('takes', `stty raw -echo; echo ready; head -c ${PASTE} | sha256sum`),
    ignores: await mesh.program('ignores', 'stty raw -echo; echo ready; sleep 3; head -c 5 > /dev/null; echo over'),
  }
  await alice.start()
  const commands = [['sh'], ['cat'], ...DRAWING.map(({ argv }) => argv), ...Object.values(programs).map((path) => [path])]
  await bob.writeAcl(
    [
      { agent: alice, commands, terminals: true },
      { agent: alice, commands: [['tty']] },
    ],
    `max_stdout_bytes = ${4 * MIB}\nmax_concurrent_per_agent = 16`,
  )
  await bob.start()
  await alice.meet(bob, 'known')
  await bob.meet(alice, 'trusted')
})

after(async () => mesh.stop())

test(
  'a shell on a terminal of tmux has its size, resizes and Ctrl-C, returns its exit status and restores the terminal',
  { skip: NO_TMUX },
  async (t) => {
    const tmux = await Tmux.make(t)
    await inTmux(tmux, alice, '-t bob -- sh')
    await tmux.shows(/^[#$]/)
    await typeLine(tmux, 'stty size')
    await tmux.shows(/^24 80$/)
    await tmux.resize(100, 30)
    await typeLine(tmux, 'stty size')
    await tmux.shows(/^30 100$/)
    await typeLine(tmux, `sleep ${LONG}`)
    await until('it sleeps', async () => (await processesNaming(LONG)).length > 0)
    await tmux.press('C-c')
    await typeLine(tmux, 'echo after=$? $TERM')
    await tmux.shows(/^after=130 \S*xterm\S*|^after=130 tmux\S*|^after=130 screen\S*/)
    await typeLine(tmux, 'exit 9')
    await tmux.shows(/^status=9$/)
    await tmux.shows(/^icanon$/)
  },
)

test('Enter ~ . ends the connection and the program, ~? shows help and ~~ sends a tilde', { skip: NO_TMUX }, async (t) => {
  const tmux = await Tmux.make(t)
  await inTmux(tmux, alice, '-t bob -- cat')
  await until('it runs', async () => (await bob.diagnostics()).active_sessions > 0)
  await typeLine(tmux, '~~a')
  await tmux.shows(/^~a$/)
  await tmux.press('~')
  await tmux.press('?')
  await tmux.shows(/end the connection/)
  await tmux.press('~')
  await tmux.press('.')
  await tmux.shows(/^status=255$/)
  await tmux.shows(/^icanon$/)
  await until('it has ended', async () => (await bob.diagnostics()).active_sessions === 0)
})

test('the exit status is that of the program or of its signal', async () => {
  const shell = new Typed(alice, ['--', 'sh'])
  shell.type('exit 7\n')
  assert.equal(await shell.status, 7)
  const killed = new Typed(alice, ['--', programs.killed])
  assert.equal(await killed.status, 143)
})

test('a command without terminal = true is denied, and -t needs a terminal and one host', async () => {
  const denied = await alice.cli(['exec', '-tt', 'bob', '--', 'tty'], { stdin: new Uint8Array(0) })
  assert.equal(denied.status, 255)
  assert.match(denied.stderr, /bob denied "tty" \(terminal_not_allowed\)/)
  for (const [words, problem] of [
    [['-t', 'bob', '--', 'cat'], /standard input is not a terminal[\s\S]*-tt/],
    [['-tt', 'bob', 'alice', '--', 'cat'], /-t needs one host/],
    [['-tt', 'bob', '-g', '--', 'cat'], /cannot be used with/],
    [['-tt', 'bob', '--detach', '--', 'cat'], /cannot be used with/],
    [['-tt', 'bob', '--json', '--', 'cat'], /cannot be used with/],
  ] as const) {
    const result = await alice.cli(['exec', ...words])
    assert.equal(result.status, 2, words.join(' '))
    assert.match(result.stderr, problem)
  }
})

test('the end of the client, even by SIGKILL, sends SIGHUP to the program', async () => {
  const typed = new Typed(alice, ['--', programs.hears])
  await typed.shows('ready')
  const pid = await until('it is in the journal', async () => {
    const starts = (await bob.journal()).filter(({ event }) => event === 'started')
    return Number(starts.at(-1)?.['pid']) || null
  })
  typed.child.kill('SIGKILL')
  await until('it has ended', () => !isRunning(pid), GONE_MS)
  assert.equal(readFileSync(join(mesh.root, 'heard'), 'utf8'), 'hup\n')
})

test('closing the terminal window ends the program', { skip: NO_TMUX }, async (t) => {
  const tmux = await Tmux.make(t)
  await inTmux(tmux, alice, `-t bob -- ${programs.hears}`)
  await tmux.shows(/^ready$/)
  // Waits until no process of the window is left.
  await tmux.close()
  await until('it has ended', async () => (await bob.diagnostics()).active_sessions === 0)
})

test('SIGTERM ends the command line with status 143 and ends the program', async () => {
  const typed = new Typed(alice, ['--', 'cat'])
  typed.type('one\n')
  await typed.shows('one')
  typed.child.kill('SIGTERM')
  assert.equal(await typed.status, 143)
  await until('it has ended', async () => (await bob.diagnostics()).active_sessions === 0)
})

test('a paste of ten mebibytes arrives unchanged and needs few signatures', async (t) => {
  const data = randomBytes(PASTE)
  const signed = async (): Promise<number> => (await alice.diagnostics()).totals['signatures_issued'] ?? 0
  const earlier = await signed()
  const typed = new Typed(alice, ['--', programs.takes])
  await typed.shows('ready')
  const begun = performance.now()
  // Replaces tildes, because x0x itself would interpret a tilde after a line end.
  for (let at = 0; at < data.length; at++) if (data[at] === 0x7e) data[at] = 0
  typed.type(data)
  await typed.shows(createHash('sha256').update(data).digest('hex'))
  assert.equal(await typed.status, 0)
  const count = (await signed()) - earlier
  t.diagnostic(`${count} signatures, ${Math.round(performance.now() - begun)} ms`)
  assert.ok(count < 1_000, `${count} signatures`)
})

test('a program that floods its terminal is ended at the output limit', async () => {
  const typed = new Typed(alice, ['--', programs.floods])
  assert.equal(await typed.status, 255)
  assert.match(typed.stderr, /the output limit of the target was reached \(stdout_cap_hit\)/)
  assert.ok(typed.stdout.length <= 4 * MIB)
  await until('it has ended', async () => (await bob.diagnostics()).active_sessions === 0)
})

test('a program that does not read its input does not block its requester or another run', async () => {
  const typed = new Typed(alice, ['--', programs.ignores])
  await typed.shows('ready')
  typed.type(Buffer.alloc(2 * MIB, 'x'))
  const shell = new Typed(alice, ['--', 'sh'])
  shell.type('exit 3\n')
  assert.equal(await shell.status, 3)
  await typed.shows('over')
  assert.equal(await typed.status, 0)
})

/** An open request whose body the test writes. The daemon may close it before the body ends. */
const terminalCall = (): ClientRequest => {
  const token = readFileSync(join(alice.dir, 'api-token'), 'utf8').trim()
  return request({
    host: '127.0.0.1',
    port: alice.apiPort,
    method: 'POST',
    path: '/exec/terminal',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/x-ndjson' },
  }).on('error', () => undefined)
}

test('POST /exec/terminal answers with events, and its body takes keys and sizes', async () => {
  const call = terminalCall()
  const line = (value: object): void => void call.write(`${JSON.stringify(value)}\n`)
  line({ agent: 'bob', argv: ['sh'], terminal: { columns: 80, rows: 24, term: 'dumb' } })
  line({ columns: 33, rows: 11 })
  line({ data: Buffer.from('stty size\nexit 4\n').toString('base64') })
  const answer = await response(call)
  let text = ''
  for await (const part of answer as AsyncIterable<Buffer>) text += part.toString()
  call.end()
  const events = text
    .trimEnd()
    .split('\n')
    .map((one) => JSON.parse(one) as { type: string; data_b64?: string; code?: number })
  assert.equal(events[0]?.type, 'started')
  const output = events.map(({ data_b64 = '' }) => Buffer.from(data_b64, 'base64').toString()).join('')
  assert.match(output, /11 33/)
  assert.deepEqual([events.at(-1)?.type, events.at(-1)?.code], ['exit', 4])
})

test('ten thousand resizes do not delay keys or output, and the last size applies', async () => {
  const call = terminalCall()
  const line = (value: object): void => void call.write(`${JSON.stringify(value)}\n`)
  line({ agent: 'bob', argv: ['sh'], terminal: { columns: 80, rows: 24, term: 'dumb' } })
  const answer = await response(call)
  const begun = performance.now()
  for (let at = 0; at < RESIZES; at++) line({ columns: 10 + (at % 500), rows: 10 })
  line({ columns: 77, rows: 22 })
  line({ data: Buffer.from('sleep 0.1; stty size; exit 4\n').toString('base64') })
  let text = ''
  for await (const part of answer as AsyncIterable<Buffer>) text += part.toString()
  call.end()
  const events = text
    .trimEnd()
    .split('\n')
    .map((one) => JSON.parse(one) as { type: string; data_b64?: string; code?: number })
  assert.match(events.map(({ data_b64 = '' }) => Buffer.from(data_b64, 'base64').toString()).join(''), /22 77/)
  assert.equal(events.at(-1)?.code, 4)
  assert.ok(performance.now() - begun < 10_000)
})

test('the end of the body of POST /exec/terminal ends the program', async () => {
  const call = terminalCall()
  call.write(`${JSON.stringify({ agent: 'bob', argv: ['cat'], terminal: { columns: 80, rows: 24, term: 'dumb' } })}\n`)
  const answer = await response(call)
  call.end()
  let text = ''
  for await (const part of answer as AsyncIterable<Buffer>) text += part.toString()
  const exit = JSON.parse(text.trimEnd().split('\n').at(-1)!) as { type: string; signal: number; warnings: string[] }
  assert.deepEqual([exit.type, exit.signal, exit.warnings.includes('cancelled')], ['exit', 1, true])
})

test('over a path that is cut repeatedly, each key arrives once and the user gets notices', async (t) => {
  const stage = await proxiedPair(t, (port) => new CuttableProxy(port))
  await acquaint(stage, [['cat']], '', true)
  const typed = new Typed(stage.alice, ['--', 'cat'])
  // Once as the echo of the terminal, once as the output of the program.
  const countOf = (text: string): number => typed.stdout.split('\r\n').filter((line) => line === text).length
  const isWritten = async (text: string): Promise<unknown> => until(`${text} is written: ${typed.stdout}`, () => countOf(text) >= 2)
  typed.type('line 0\n')
  await isWritten('line 0')
  for (let at = 1; at <= CUTS; at++) {
    typed.type(`before ${at}\n`)
    stage.proxy.cut()
    typed.type(`line ${at}\n`)
    await isWritten(`line ${at}`)
  }
  typed.type('\u0004')
  assert.equal(await typed.status, 0)
  for (let at = 1; at <= CUTS; at++)
    for (const text of [`before ${at}`, `line ${at}`]) assert.equal(countOf(text), 2, `${text}: ${JSON.stringify(typed.stdout)}`)
  assert.match(typed.stderr, /\[x0x: connection to bob lost, retrying\]\r\n/)
  assert.match(typed.stderr, /\[x0x: connected again\]\r\n/)
  assert.equal((await stage.bob.cli(['audit', 'verify'])).status, 0)
})

for (const { argv, shows, keys } of DRAWING)
  test(`${argv[0]} draws its screen and leaves the terminal as it was`, { skip: NO_TMUX }, async (t) => {
    const tmux = await Tmux.make(t)
    await inTmux(tmux, alice, `-t bob -- ${argv.join(' ')}`)
    await tmux.shows(shows)
    for (const key of keys) await tmux.press(key)
    await tmux.shows(/^status=0$/)
    await tmux.shows(/^icanon$/)
    assert.equal(await tmux.variable('alternate_on'), '0')
    assert.equal(await tmux.variable('mouse_any_flag'), '0')
  })

test('an ACL reload without terminal = true ends runs on terminals and denies new ones', async () => {
  const typed = new Typed(alice, ['--', 'cat'])
  typed.type('one\n')
  await typed.shows('one')
  const piped = alice.startCli(['exec', 'bob', '--', 'cat'])
  await piped.finished
  await writeFile(bob.aclFile, (await readFile(bob.aclFile, 'utf8')).replaceAll('terminal = true\n', ''))
  process.kill(bob.pid, 'SIGHUP')
  assert.equal(await typed.status, 255)
  assert.match(typed.stderr, /access_revoked/)
  const again = await alice.cli(['exec', '-tt', 'bob', '--', 'cat'], { stdin: new Uint8Array(0) })
  assert.match(again.stderr, /terminal_not_allowed/)
})
