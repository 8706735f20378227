import assert from 'node:assert/strict'
import { mkdir, open, stat, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { test } from 'node:test'

import { ConsolePlace } from '../../test/support/console-place.ts'
import { entry, transcriptOf } from '../../test/support/transcripts.ts'
import { terminalProblem } from '../../src/process/terminal.ts'

// One command after another through the built programs. Checks what rexec.md promises about the host, its client and the exit statuses.

const OPTIONS = { timeout: 60_000, skip: terminalProblem() ?? false }

test('a console host prints its socket path, shows each command and removes its socket after Ctrl-C', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const away = await place.rexec(['--check-host'])
  assert.deepEqual([away.status, away.stdout, away.stderr], [127, 'HOST NOT FOUND\n', ''])
  const lost = await place.run(['true'])
  assert.deepEqual([lost.status, lost.stdout], [127, ''])
  assert.match(lost.stderr, /^HOST NOT FOUND\n {2}no console of this user listens at \S+.*\n {2}Try, in another terminal: .*x0x console\n$/)

  const host = await place.host()
  assert.match(host.stderr, new RegExp(`^rexec host listening on ${place.socket}$`, 'm'))
  assert.match(host.stderr, /^rexec transcript: ~\/\.rexec\/\d{4}-\d\d-\d\d-\d\d:\d\d:\d\d\.jsonl$/m)
  assert.equal((await stat(place.socket)).mode & 0o777, 0o600)
  assert.equal((await stat(join(place.dir, 'run'))).mode & 0o777, 0o700)
  const there = await place.rexec(['-c'])
  assert.deepEqual([there.status, there.stdout], [0, 'HOST RUNNING\n'])

  const one = await place.run(['sh', '-c', 'echo out; echo err >&2; exit 7'])
  assert.deepEqual([one.status, one.stdout, one.stderr], [7, 'out\nerr\n', ''])
  await host.printed(/^\[\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ\].* Codex:.* \$ sh -c 'echo out; echo err >&2; exit 7'$/m)

  host.child.kill('SIGINT')
  const { status, stderr } = await host.ended
  assert.deepEqual([status, stderr.endsWith('rexec host: shutdown\n')], [0, true])
  await assert.rejects(stat(place.socket), { code: 'ENOENT' })
})

test('exit statuses tell how a command ended or why it did not run', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  await place.host()
  assert.equal((await place.run(['sh', '-c', 'kill -9 $$'])).status, 137)
  const missing = await place.run(['no-such-program', 'x'])
  assert.deepEqual([missing.status, missing.stdout, missing.stderr], [127, '', 'no-such-program: not found\n'])
  const directory = await place.rexec(['--whoami', 'C', '--dir', '/no/such/dir', '--', 'true'])
  assert.equal(directory.status, 127)
  assert.match(directory.stderr, /^rexec: spawn_failed: .*\/no\/such\/dir/)
  const timed = await place.run(['sleep', '600'], ['--timeout', '0.2'])
  assert.deepEqual([timed.status, timed.stderr], [124, 'rexec: stopped after 0.2 s (--timeout)\n'])
  const entries = await place.entries(4)
  assert.deepEqual(
    entries.map(({ exit, error }) => [exit, error]),
    [
      [137, undefined],
      [127, 'not_found'],
      [127, 'spawn_failed'],
      [124, 'timeout'],
    ],
  )
})

const WRONG_LINES: readonly (readonly [readonly string[], RegExp])[] = [
  [['--dir', '.', '--', 'true'], /--whoami NAME is missing/],
  [['--whoami', 'C', '--', 'true'], /--dir DIR is missing/],
  [['--whoami', 'C', '--dir', '.', 'true'], /after "--"/],
  [['--whoami', 'C', '--dir', '.', '--'], /after "--"/],
  [['--whoami', 'C', '--dir', '.', '--env', 'NOVALUE', '--', 'true'], /is not VARIABLE=VALUE/],
  [['--whoami', 'C', '--dir', '.', '--timeout', 'soon', '--', 'true'], /must be a number of seconds/],
  [['--whoami', 'a\nb', '--dir', '.', '--', 'true'], /visible/],
  [['--whoami', 'C', '--dir', '.', '--no-such', '--', 'true'], /unknown option/],
  [['--start-host', '--dir', '.'], /--dir cannot be used with --start-host/],
  [['--start-host', '--list'], /cannot be used with/],
  [['--start-host', '--silent', '--watch-journal', 'f'], /--silent cannot be used with --watch-journal/],
  [
    ['--start-host', '--watch-journal', '/no-such-journal'],
    /--watch-journal: \/no-such-journal: no such file \(ENOENT\)\n.* {2}Try: ls -ld \/\n/,
  ],
  [['--start-host', 'true'], /--start-host takes no words: "true"/],
  [['--whoami', 'C', '--dir', '.', '--silent', '--', 'true'], /--silent needs --start-host/],
  [['--mcp-stdio', '--whoami', 'C', '--timeout', '1'], /cannot be used with --mcp-stdio/],
  [['--list', '3', 'more'], /--list takes no words: "more"/],
  [['--list', '--follow'], /--follow needs --print/],
  [['--attach', '--', 'true'], /--attach takes no words/],
  [['--print'], /name of one transcript/],
]

test('a wrong command line ends with status 2', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  for (const [words, problem] of WRONG_LINES) {
    const { status, stdout, stderr } = await place.rexec([...words])
    assert.deepEqual([status, stdout], [2, ''], words.join(' '))
    assert.match(stderr, problem)
  }
})

test('a command has its own raw terminal of 80 columns and 24 rows, and no input', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  await place.host()
  const { stdout } = await place.run([
    'sh',
    '-c',
    'stty size <&1; stty -a <&1; tty; test -t 1 && test -t 2 && echo both; echo there >/dev/tty; cat; echo /proc/self/fd/* | sed s,/proc/self/fd/,,g',
  ])
  assert.match(stdout, /^24 80\nspeed 38400 baud;/)
  for (const flag of ['cs8', '-icrnl', '-ixon', '-opost', '-isig', '-icanon', '-iexten', '-echo'])
    assert.match(stdout, new RegExp(`(^|\\s)${flag}(;|\\s)`), flag)
  assert.match(stdout, /\nnot a tty\nboth\nthere\n0 /)
  const own = await place.run(['sh', '-c', 'for fd in /proc/self/fd/*; do readlink $fd; done'])
  assert.equal(own.stdout.includes('ptmx'), false, 'the other end of no terminal is in its hands')
})

test('the stdin of a command is the complete stdin of its client, and only UTF-8', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  await place.host()
  const text = 'Größe\u0000\n'.repeat(60_000)
  const counted = await place.run(['wc', '-c'], ['--read-stdin'], text)
  assert.deepEqual([counted.status, counted.stdout.trim()], [0, String(Buffer.byteLength(text))])
  const empty = await place.run(['sh', '-c', 'wc -c; readlink /proc/self/fd/0'], ['--read-stdin'])
  assert.match(empty.stdout, /^0\n(pipe|socket):/)
  const broken = await place.run(['cat'], ['--read-stdin'], Buffer.from([0x61, 0xff]))
  assert.deepEqual([broken.status, broken.stdout], [2, ''])
  // The data may arrive before or after the command has started.
  const lost = await place.run(['true'], [], 'text')
  assert.ok(lost.status === 2 || lost.status === 255, String(lost.status))
  assert.match(lost.stderr, /^rexec: standard input .*\(stdin_not_sent\)(?:.*\n)+.*Try: rexec .* --read-stdin -- true/)
  const large = await place.run(['cat'], ['--read-stdin'], Buffer.alloc(1024 * 1024 + 1, 'a'))
  assert.deepEqual([large.status, large.stdout], [2, ''])
})

test(
  "a command gets the environment of the host plus the given variables, or only those, and keeps the client's name",
  OPTIONS,
  async (t) => {
    const other = await ConsolePlace.make(t)
    const home = other.env['HOME'] ?? ''
    await mkdir(join(home, '.local', 'bin'), { recursive: true })
    await writeFile(join(home, '.local', 'bin', 'own-program'), '#!/bin/sh\necho "mine: $0"\n', { mode: 0o755 })
    await other.host(['--start-host'], { env: { OF_HOST: 'yes', PWD: '/nowhere' } })
    const words = ['--env', 'A=1=2', '-e', 'REXEC_WHOAMI=root', '-e', 'NODE_OPTIONS=--no-such-option-of-node']
    const full = await other.run(['sh', '-c', 'echo $OF_HOST $A $REXEC_WHOAMI $NODE_OPTIONS; pwd'], words)
    assert.equal(full.stdout, `yes 1=2 Codex --no-such-option-of-node\n${other.dir}\n`)
    const cleared = await other.run(['/usr/bin/env'], ['--clear-env', '-e', 'ONLY=this'])
    const names = cleared.stdout.split('\n').map((line) => line.split('=')[0] ?? '')
    assert.deepEqual(names.filter((name) => !/^(X0X_.*|)$/.test(name)).sort(), ['ONLY', 'REXEC_WHOAMI', 'TERM'])
    assert.match((await other.run(['own-program'])).stdout, /^mine: /)
    await writeFile(join(other.dir, 'here.sh'), '#!/bin/sh\necho here\n', { mode: 0o755 })
    assert.equal((await other.run(['./here.sh'])).stdout, 'here\n')
    const given = await other.run(['here.sh'], ['-e', `PATH=${other.dir}:/usr/bin:/bin`])
    assert.equal(given.stdout, 'here\n')
    assert.deepEqual((await other.entries(5))[0]?.envs, {
      A: '[not recorded]',
      REXEC_WHOAMI: '[not recorded]',
      NODE_OPTIONS: '[not recorded]',
    })
  },
)

test('output comes back as text without terminal escape sequences', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const host = await place.host()
  const script = String.raw`printf '\357\273\277a\r\nb\rc\n\033[1;31mred\033[0m \033(Bplain \033]0;title\007end\n\033]0;open\nnext\n\302\233x\n'; printf '\377\n'`
  const { stdout } = await place.run(['sh', '-c', script])
  assert.equal(stdout, '\ufeffa\nb\nc\nred plain end\n\nnext\n\n\ufffd\n')
  await host.printed(/red plain end/)
})

test('the reply with a huge output keeps the beginning and the end and counts the omitted bytes', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  await place.host()
  const { status, stdout } = await place.run(['sh', '-c', 'echo begin; head -c 8000000 /dev/zero | tr "\\0" x; echo; echo end'])
  assert.equal(status, 0)
  assert.ok(stdout.length < 1_200_000, `${stdout.length}`)
  assert.match(stdout, /^begin\nx+\n\[… \d+ bytes are left out …\]\nx+\nend\n$/)
})

test('x0x console runs commands and checks the host as rexec does', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  await place.host(['console'], { program: 'x0x' })
  const ended = await place.begin(['console', 'run', '--whoami', 'C', '--dir', '/', '--', 'echo', 'hi'], { program: 'x0x' }).ended
  assert.deepEqual([ended.status, ended.stdout], [0, 'hi\n'])
  const checked = await place.begin(['console', 'check'], { program: 'x0x' }).ended
  assert.equal(checked.stdout, 'HOST RUNNING\n')
})

test('--list, --print and --follow read the transcripts that the host writes', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  const host = await place.host()
  const name = /\.rexec\/(.*)\.jsonl/.exec(host.stderr)?.[1] ?? ''
  await place.run(['echo', 'first'])
  for (const words of [['--list'], ['-l', '5'], ['--list', '1']]) assert.equal((await place.rexec(words)).stdout, `${name} commands=1\n`)
  assert.match((await place.rexec(['--print', name])).stdout, /^\[.*\] Codex:.* \$ echo first\n\| first\n\n$/)
  const following = place.begin(['-p', '-f', name])
  await following.printed(/first\n\n/)
  await place.run(['echo', 'second'])
  await following.printed(/second\n\n/)
  following.child.kill('SIGINT')
  assert.equal((await following.ended).status, 0)
  const escape = await place.rexec(['--print', '../../etc/passwd'])
  assert.deepEqual([escape.status, escape.stdout], [2, ''])
})

test('a client that cannot write its output reports it and fails, and exits with 141 if its reader left', OPTIONS, async (t) => {
  const place = await ConsolePlace.make(t)
  await place.host()
  const name = '2020-01-01-00:00:00'
  const entries = Array.from({ length: 40 }, () => entry({ output: 'x'.repeat(100_000) }))
  await transcriptOf(join(place.dir, 'home', '.rexec'), name, entries)
  const whole = await place.rexec(['--print', name])
  assert.deepEqual([whole.status, whole.stderr], [0, ''])
  const run = (...argv: string[]) => ['--whoami', 'Codex', '--dir', '/', '--', ...argv]
  for (const [words, status] of [
    [run('echo', 'lost'), 1],
    [run('sh', '-c', 'echo lost; exit 7'), 7],
    [['--print', name], 1],
    [['--list'], 1],
  ] as const) {
    const stdout = await open('/dev/full', 'w')
    const { child, ended } = place.begin(words, { stdout: stdout.fd })
    child.stdin?.end()
    const end = await ended
    await stdout.close()
    assert.deepEqual([end.status, end.stderr.startsWith('rexec: cannot write the output: ENOSPC')], [status, true], words.join(' '))
  }
  const left = place.begin(['--print', name])
  left.child.stdout?.destroy()
  assert.deepEqual([(await left.ended).status, left.stderr], [141, ''])
})
