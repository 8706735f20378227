import assert from 'node:assert/strict'
import { type StdioOptions, spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { after, before, beforeEach, test } from 'node:test'

import {
  aliceBobCharlie,
  cleanEnvironment,
  cliCommand,
  isRunning,
  MeshOfDaemons,
  type TestDaemon,
} from '../test/support/mesh-of-daemons.ts'

// Commands that do not read their standard input, on real daemons and with common shells. This is the table of the ADR about standard
// input.

const OPTIONS = { timeout: 120_000 }
const REFUSED =
  /^x0x: standard input has data that would not be sent \(stdin_not_sent\), so nothing was run\n {5}Try: x0x .* --stdin-file - .*\n {5}Try: x0x .* < \/dev\/null {3}\(to run without it\)\n$/
const LATE = /x0x: standard input got data during the run, which was not sent \(stdin_not_sent\)\n {5}Try: x0x .* --stdin-file - /
const LEFT = /^(?:x0x: standard input has data, which was left for other readers\n(?: {5}.*\n)+)+$/
const SILENT = /^$/

let mesh: MeshOfDaemons
let alice: TestDaemon
let bob: TestDaemon
/** Working directory of every line. It contains `x0x`, and files that mark the progress of a line. */
let place: string
const at = (name: string): string => join(place, name)

before(async () => {
  mesh = await MeshOfDaemons.create()
  place = join(mesh.root, 'alice')
  const waits = `: > ${at('running')}; while [ ! -e ${at('sent')} ]; do sleep 0.02; done`
  const programs = [await mesh.program('waits', waits), await mesh.program('fails', `${waits}; exit 7`)]
  const commands = [['true'], ['cat'], ['wc', '-c'], ...programs.map((program) => [program])]
  ;({ alice, bob } = await aliceBobCharlie(mesh, commands))
  await mkdir(join(mesh.root, 'files'))
  const acl = await readFile(bob.aclFile, 'utf8')
  const files = `\n[[exec.allow.files]]\nroot = ${JSON.stringify(join(mesh.root, 'files'))}\nread = true\nwrite = true\n`
  await writeFile(bob.aclFile, `${acl.replace('machine_id', 'detach = true\nmachine_id')}${files}`, { mode: 0o600 })
  await bob.restart()
  // Delays the start of x0x for lines whose data must be written first.
  const [file, ...words] = cliCommand
  const exec = `exec ${[file, ...words].join(' ')} --data-dir ${place} "$@"`
  await writeFile(at('x0x'), `#!/bin/sh\nwhile [ -n "$AFTER" ] && [ ! -e "$AFTER" ]; do sleep 0.02; done\n${exec}\n`, { mode: 0o755 })
  const script = '#!/bin/sh\nx0x exec bob -- true\ncat\n'
  await Promise.all([
    writeFile(at('three'), 'a\nb\nc\n'),
    writeFile(at('none'), ''),
    writeFile(at('script'), script, { mode: 0o755 }),
    writeFile(at('bash-script'), script.replace('/bin/sh', '/usr/bin/env bash'), { mode: 0o755 }),
  ])
})

beforeEach(async () => {
  await Promise.all(['written', 'running', 'sent'].map(async (name) => rm(at(name), { force: true })))
})

after(async () => mesh.stop())

interface Ended {
  readonly status: number | null
  readonly stdout: string
  readonly stderr: string
}

const run = async (argv: readonly string[], env: Readonly<Record<string, string>> = {}, stdin: StdioOptions = 'ignore'): Promise<Ended> => {
  const [file = '', ...words] = argv
  const PATH = `${place}:${process.env['PATH'] ?? ''}`
  const options = { cwd: place, env: { ...cleanEnvironment(), PATH, ...env }, stdio: [stdin as 'pipe', 'pipe', 'pipe'] as const }
  const child = spawn(file, words, { ...options, stdio: [...options.stdio] })
  const [stdout, stderr, [status]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, 'close')])
  return { status: status as number | null, stdout, stderr }
}

/** Number of programs that bob has started. */
const runsOnBob = async (): Promise<number> => (await bob.journal()).filter(({ event }) => event === 'started').length

const SHELLS = (
  [
    ['bash', '-c'],
    ['dash', '-c'],
    ['busybox', 'sh', '-c'],
    ['zsh', '-c'],
    ['fish', '-c'],
  ] as const
).filter(([file]) => spawnSync(file, ['--version']).error === undefined)

interface Line {
  readonly line: string
  readonly status: number
  readonly stdout?: string
  readonly stderr: RegExp
  /** `x0x` starts when this file exists. */
  readonly after?: string
  /** Shells that do not know this line, and shells with another text on stderr. */
  readonly not?: readonly string[]
  readonly but?: Readonly<Record<string, RegExp>>
}

const ENDED_WITH = '; echo "ended with $?"'
const REFUSED_2 = { status: 0, stdout: 'ended with 2\n', stderr: REFUSED } as const
const LOOP = 'while read -r h; do x0x exec bob -- true; echo "$h"; done'

const LINES: readonly Line[] = [
  // Data for this command only.
  { line: `{ echo hello; : > written; } | x0x exec bob -- cat${ENDED_WITH}`, after: 'written', ...REFUSED_2, not: ['fish'] },
  {
    line: 'begin; echo hello; true > written; end | x0x exec bob -- cat',
    status: 2,
    stderr: REFUSED,
    after: 'written',
    not: ['bash', 'dash', 'busybox', 'zsh'],
  },
  { line: `x0x exec bob -- cat < three${ENDED_WITH}`, ...REFUSED_2, not: ['fish'] },
  { line: 'x0x exec bob -- cat < three', status: 2, stderr: REFUSED },
  { line: 'cat three | x0x exec bob --stdin-file - -- wc -c', status: 0, stdout: '6\n', stderr: SILENT },
  { line: 'x0x exec bob -- cat < three && echo ran', status: 2, stdout: '', stderr: REFUSED },
  { line: 'x0x --json exec bob -- cat < three > answer', status: 2, stderr: REFUSED },
  { line: 'x0x -q exec bob -- cat < three', status: 2, stderr: REFUSED },
  { line: 'x0x exec bob charlie -- cat < three', status: 2, stderr: REFUSED },
  { line: 'x0x exec bob --timeout 5 -- cat <<< hello', status: 2, stderr: REFUSED, not: ['dash', 'busybox', 'fish'] },
  {
    line: 'x0x exec bob -- cat <<END\nhello\nEND\ntrue',
    status: 0,
    stderr: REFUSED,
    not: ['fish'],
    but: { dash: LEFT, busybox: LEFT },
  },
  // No data to lose.
  { line: ': | x0x exec bob -- true', status: 0, stderr: SILENT, not: ['fish'] },
  { line: 'x0x exec bob -- true < none', status: 0, stderr: SILENT },
  { line: 'x0x exec bob -- true < /dev/null', status: 0, stderr: SILENT },
  { line: 'x0x exec bob -- true <&-', status: 0, stderr: SILENT },
  { line: 'x0x exec bob --stdin-file three -- cat < three', status: 0, stdout: 'a\nb\nc\n', stderr: SILENT },
  // Loops and scripts keep their input.
  { line: `${LOOP} < three`, status: 0, stdout: 'a\nb\nc\n', stderr: SILENT, not: ['fish'] },
  { line: `cat three | ${LOOP}`, status: 0, stdout: 'a\nb\nc\n', stderr: SILENT, not: ['fish'], but: { zsh: LEFT } },
  {
    line: `${LOOP} <<END\na\nb\nEND`,
    status: 0,
    stdout: 'a\nb\n',
    stderr: LEFT,
    not: ['fish'],
    but: { zsh: SILENT },
  },
  {
    line: 'while read -r h; do v=$(x0x exec bob -- true; echo "$h"); echo "$v"; done < three',
    status: 0,
    stdout: 'a\nb\nc\n',
    stderr: SILENT,
    not: ['fish'],
  },
  {
    line: 'while read -r h; do x0x exec bob -- true | cat; (x0x exec bob -- true); echo "$h"; done < three',
    status: 0,
    stdout: 'a\nb\nc\n',
    stderr: SILENT,
    not: ['fish'],
  },
  {
    line: 'cat three | while read -l h; x0x exec bob -- true; echo $h; end',
    status: 0,
    stdout: 'a\nb\nc\n',
    stderr: LEFT,
    not: ['bash', 'dash', 'busybox', 'zsh'],
  },
  {
    line: 'while read -l h; x0x exec bob -- true; echo $h; end < three',
    status: 0,
    stdout: 'a\nb\nc\n',
    stderr: SILENT,
    not: ['bash', 'dash', 'busybox', 'zsh'],
  },
  { line: 'echo bob | xargs -I H x0x exec H -- true', status: 0, stderr: SILENT },
  { line: 'cat three | ./script', status: 0, stdout: 'a\nb\nc\n', stderr: LEFT },
  { line: 'cat three | ./bash-script', status: 0, stdout: 'a\nb\nc\n', stderr: LEFT },
  { line: './bash-script < three', status: 0, stdout: 'a\nb\nc\n', stderr: LEFT },
  { line: './script < three', status: 0, stdout: 'a\nb\nc\n', stderr: LEFT },
  { line: 'cat three | { x0x exec bob -- true; cat; }', status: 0, stdout: 'a\nb\nc\n', stderr: LEFT, not: ['fish'] },
  { line: 'printf "x0x exec bob -- true\\necho end\\n" | bash', status: 0, stdout: 'end\n', stderr: LEFT },
  // dash reads a whole block of its script at once.
  { line: 'printf "x0x exec bob -- true\\necho end\\n" | dash', status: 0, stdout: 'end\n', stderr: SILENT },
  // It is unknown whether another process reads the pipe.
  { line: 'cat three | timeout 60 x0x exec bob -- true', status: 0, stderr: LEFT, not: ['busybox'] },
  { line: 'cat three | timeout 60 x0x -q exec bob -- true', status: 0, stderr: SILENT, not: ['busybox'] },
  // busybox timeout runs the command in its own process and watches it from another.
  { line: 'busybox timeout 60 x0x exec bob -- true < three', status: 2, stderr: REFUSED },
  { line: 'cat three | env A=1 nice x0x exec bob -- true; echo end', status: 0, stdout: 'end\n', stderr: /stdin_not_sent/ },
  // Data that arrives late.
  {
    line: `{ while [ ! -e running ]; do sleep 0.02; done; echo late; : > sent; } | x0x exec bob -- WAITS${ENDED_WITH}`,
    status: 0,
    stdout: 'ended with 255\n',
    stderr: LATE,
    not: ['fish'],
  },
  {
    line: `{ while [ ! -e running ]; do sleep 0.02; done; echo late; : > sent; } | x0x -q exec bob -- FAILS${ENDED_WITH}`,
    status: 0,
    stdout: 'ended with 7\n',
    stderr: LATE,
    not: ['fish'],
  },
  // Detached runs and commands that read stdin.
  {
    line: 'x0x exec bob --detach -- true < three',
    status: 2,
    stderr: /stdin_not_sent.*\n {5}A detached run has no stdin\n {5}Try: x0x .*cp - HOST:PATH/,
  },
  { line: 'x0x -q cp - bob:COPY < three', status: 0, stderr: SILENT },
  { line: 'x0x exec -t bob -- true < three', status: 2, stderr: /standard input is not a terminal/ },
]

for (const shell of SHELLS) {
  const [name] = shell
  test(`standard input in ${name}`, OPTIONS, async (t) => {
    for (const { line, status, stdout, stderr, after: wait, not = [], but = {} } of LINES) {
      if (not.includes(name)) continue
      await t.test(line.replaceAll('\n', '\\n'), async () => {
        await Promise.all(['written', 'running', 'sent'].map(async (file) => rm(at(file), { force: true })))
        const before = await runsOnBob()
        const paths = { WAITS: join(mesh.root, 'waits'), FAILS: join(mesh.root, 'fails'), COPY: join(mesh.root, 'files', 'copied') }
        const filled = line.replaceAll(/WAITS|FAILS|COPY/g, (word) => paths[word as keyof typeof paths])
        const ended = await run([...shell, filled], wait === undefined ? {} : { AFTER: at(wait) })
        const wanted = but[name] ?? stderr
        assert.match(ended.stderr, wanted)
        assert.deepEqual([ended.status, stdout ?? ended.stdout], [status, ended.stdout])
        if (wanted === REFUSED) assert.equal(await runsOnBob(), before, 'nothing ran on bob')
      })
    }
  })
}

test('x0x runs a command if its pipe or socket for stdin has no data, and refuses if it has', OPTIONS, async () => {
  for (const [input, status, stderr] of [
    ['hello', 2, REFUSED],
    ['', 0, SILENT],
    [null, 0, SILENT],
  ] as const) {
    // Delays the start of x0x until the data is written. Node.js uses a socket as stdin.
    const env = { ...cleanEnvironment(), ...(input === 'hello' && { AFTER: at('written') }) }
    const child = spawn(at('x0x'), ['exec', 'bob', '--', 'true'], { cwd: place, env })
    if (input !== null) child.stdin.end(input)
    await writeFile(at('written'), '')
    const [said, [ended]] = await Promise.all([text(child.stderr), once(child, 'exit')])
    child.stdin.destroy()
    assert.match(said, stderr)
    assert.equal(ended, status, JSON.stringify(input))
  }
})

const PYTHON = `import subprocess, sys
data = sys.argv[1].encode()
child = subprocess.Popen(['./x0x', 'exec', 'bob', '--', 'true'], stdin=subprocess.PIPE)
if data:
    child.stdin.write(data)
    child.stdin.flush()
open('written', 'w').close()
sys.exit(child.wait())
`

test(
  'the process that writes to the pipe does not count as another reader of it',
  { ...OPTIONS, skip: spawnSync('python3', ['--version']).status !== 0 },
  async () => {
    const env = { AFTER: at('written') }
    const [open, full] = [await run(['python3', '-c', PYTHON, ''], env), await run(['python3', '-c', PYTHON, 'hello'], env)]
    assert.deepEqual([open.status, open.stderr], [0, ''])
    assert.match(full.stderr, REFUSED)
    assert.equal(full.status, 2)
  },
)

test('a loop in a program that reads line by line keeps its input', OPTIONS, async () => {
  const perl = 'while (<STDIN>) { system("x0x", "exec", "bob", "--", "true") == 0 or exit 1; print }'
  assert.equal((await run(['bash', '-c', `cat three | perl -e '$| = 1; ${perl}'`])).stdout, 'a\nb\nc\n')
})

test('both daemons still run at the end', () => assert.ok(isRunning(alice.pid) && isRunning(bob.pid)))
