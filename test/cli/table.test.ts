import assert from 'node:assert/strict'
import { execFile, spawnSync } from 'node:child_process'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { test, type TestContext } from 'node:test'
import { isDeepStrictEqual, promisify } from 'node:util'

import type { CommandPath, CommandSpec } from '../../src/cli/command.ts'
import { completions, COMPLETION_SCRIPTS } from '../../src/cli/completion.ts'
import { EXEC } from '../../src/cli/exec.ts'
import { helpText } from '../../src/cli/help.ts'
import { BUNDLE } from '../../src/cli/programs.ts'
import { DESK } from '../../src/cli/programs.ts'
import { MCP } from '../../src/cli/programs.ts'
import { manualPage } from '../../src/cli/man.ts'
import { PLAIN_EXEC } from '../../src/cli/plain-exec.ts'
import { REXD, REXD_EXEC } from '../../src/cli/rexd.ts'
import { SHELLS, type Shell } from '../../src/cli/completion.ts'
import { REXEC } from '../../src/cli/rexec.ts'
import { UI } from '../../src/cli/programs.ts'
import { X0X } from '../../src/cli/x0x.ts'
import { X0XD } from '../../src/cli/programs.ts'
import { OTHER_COMMANDS } from '../../src/programs/x0x/other-commands.ts'
import { RELEASED, VERSION } from '../../src/base/runtime.ts'
import { commandInPath } from '../support/command-in-path.ts'
import { fakeDaemon, json, runCli } from '../support/fake-daemon.ts'
import { until } from '../support/processes.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const X0X_FILE = join(ROOT, 'dist', 'x0x.cjs')
const PROGRAMS: readonly CommandSpec[] = [X0X, MCP, UI, DESK, BUNDLE, X0XD, REXD, REXD_EXEC, REXEC]

const pathsBelow = (path: CommandPath): CommandPath[] => [
  path,
  ...(path.at(-1)?.commands ?? []).flatMap((command) => pathsBelow([...path, command])),
]

test("exec without a subcommand reserves the names of exec's subcommands", () => {
  const names = ({ commands }: CommandSpec) => commands?.map(({ name }) => name)
  assert.deepEqual(names(PLAIN_EXEC), names(EXEC))
})

test('the implemented commands are exactly the commands of the table', () => {
  const runnable = pathsBelow([X0X]).filter((path) => path.at(-1)?.group !== true)
  assert.ok(runnable.length > 20)
  assert.deepEqual(
    runnable
      .map((path) =>
        path
          .slice(1)
          .map(({ name }) => name)
          .join(' '),
      )
      .sort(),
    Object.keys(OTHER_COMMANDS).sort(),
  )
})

test('help lists every option and command within 80 columns, and uses the width of wider terminals', () => {
  for (const path of PROGRAMS.flatMap((program) => pathsBelow([program]))) {
    const { options = [], commands = [], text, examples = [] } = path.at(-1)!
    assert.ok(text.length > 0)
    const help = helpText(path)
    for (const { flags } of options) assert.ok(help.includes(`\n  ${flags}`), flags)
    for (const { name } of commands) assert.match(help, new RegExp(`\\n  ${name}\\b`))
    const ours = help.split('\n').filter((line) => !examples.includes(line.trim()))
    assert.ok(ours.slice(1).every((line) => line.length <= 80))
    assert.ok(helpText(path, 160).split('\n').length <= help.split('\n').length)
  }
  assert.equal(
    helpText([X0X, X0X.commands!.find(({ name }) => name === 'card')!]),
    "Usage: x0x card [options]\n\nPrint this agent's card, for x0x contacts import\n\nOptions:\n  -h, --help  Show this help\n",
  )
})

const anyOf = (pattern: string): RegExp => new RegExp(`\\b(?:${pattern})\\b`, 'i')
const RETIRED = anyOf(Object.keys(JSON.parse(readFileSync(join(ROOT, 'deploy/prose/retired-words.json'), 'utf8')) as object).join('|'))
const PLACES = anyOf('here|there|we|our|ours|us|nobody|somebody')
const MAX_WORDS = 10

test('every description begins with a capital letter, has at most 10 words and contains no retired word', () => {
  for (const path of PROGRAMS.flatMap((program) => pathsBelow([program]))) {
    const { text, options = [], arguments: places = [] } = path.at(-1)!
    for (const about of [text, ...options.map((option) => option.text), ...places.flatMap((place) => place.text ?? [])]) {
      const described = about.replace(/ \(default: .*\)$/, '')
      assert.ok(described.split(' ').length <= MAX_WORDS, described)
      assert.match(described, /^[A-Z]/)
      assert.doesNotMatch(described, RETIRED)
      assert.doesNotMatch(described, PLACES)
    }
    assert.match(text, /^[A-Z][a-z]+,? /)
  }
})

test('x0x man prints manual pages with every option, and groff formats them without a warning', async () => {
  for (const [program, ...parts] of [
    ['x0x', X0X, MCP, UI, DESK, BUNDLE],
    ['x0xd', X0XD],
    ['rexd', REXD, REXD_EXEC],
    ['rexec', REXEC],
  ] as const) {
    const { status, stdout } = await runCli(['man', program])
    assert.equal(status, 0)
    assert.equal(stdout, manualPage(parts))
    for (const { flags } of parts.flatMap((part) => pathsBelow([part]).flatMap((path) => path.at(-1)?.options ?? [])))
      assert.ok(stdout.includes(`.B ${flags.replaceAll('-', '\\-')}\n`), flags)
    const groff = spawnSync('groff', ['-man', '-Tutf8', '-ww'], { input: stdout, encoding: 'utf8' })
    if (groff.error === undefined) assert.deepEqual([groff.status, groff.stderr], [0, ''], program)
  }
  assert.equal((await runCli(['man', 'vi'])).status, 2)
})

const words = (...line: string[]): string[] => completions(PROGRAMS, line).candidates.map(([word]) => word)

test('completion offers commands and options, but no words in the place of a value or a file', () => {
  assert.deepEqual(words('x0x', 'con'), ['contacts'])
  assert.deepEqual(words('/usr/bin/x0x', '--json', 'exec', ''), ['sessions', 'watch', 'cancel'])
  assert.deepEqual(words('x0x', 'contacts', 'p'), ['pin'])
  assert.deepEqual(words('x0x', 'exec', 'bob', '--st'), ['--stdin-file'])
  assert.deepEqual(words('x0x', 'exec', 'bob', '--j'), ['--json'])
  assert.deepEqual(words('x0x', 'exec', '--timeout', ''), [])
  assert.deepEqual(words('x0x', 'exec', 'bob', '--', 'l'), [])
  assert.deepEqual(words('x0x', '--name', 'exec', 'i'), ['id', 'init', 'invite'])
  assert.deepEqual(words('x0xd', '--do'), ['--doctor'])
  assert.deepEqual(words('x0x', 'm'), ['man', 'mcp'])
  assert.deepEqual(words('x0x', 'mcp', '--w'), ['--whoami'])
  assert.deepEqual(words('rexd', 'e'), ['exec'])
  assert.deepEqual(words('rexd', 'exec', '--ss'), ['--ssh'])
  assert.deepEqual(words('rexec', '--at'), ['--attach'])
  assert.deepEqual(words('ls', ''), [])
  assert.deepEqual(words(), [])
})

test('the single file completes and describes no program that it does not contain', () => {
  // The runtime of the single file is Bun, which the program detects by its version.
  const bun = `data:text/javascript,Object.defineProperty(process.versions, 'bun', { value: '1' })`
  const inSingleFile = (...argv: string[]): string => {
    const { status, stdout, stderr } = spawnSync(process.execPath, ['--import', bun, X0X_FILE, ...argv], { encoding: 'utf8' })
    assert.deepEqual([status, stderr], [0, ''])
    return stdout
  }
  assert.match(inSingleFile('completion', 'words', '--', 'x0x', 'm'), /^man\t[^\n]*\n$/)
  assert.equal(inSingleFile('completion', 'words', '--', 'x0x', 'mcp', '--w'), '')
  assert.doesNotMatch(inSingleFile('man', 'x0x'), /^\.SS x0x (mcp|ui|desk|bundle)\b/m)
})

/** How to ask each shell for the completions of a line. The scripts call the program by name. */
const ASKING: Readonly<Record<Shell, (script: string, line: readonly string[]) => string[]>> = {
  bash: (script, line) => [
    'bash',
    '--norc',
    '-c',
    `${script}\nCOMP_WORDS=(${line.join(' ')}); COMP_CWORD=${line.length - 1}; COMP_LINE='${line.join(' ')}'; COMP_POINT=\${#COMP_LINE}; _x0x x0x '${line.at(-1)}'; printf '%s\\n' "\${COMPREPLY[@]}"`,
  ],
  zsh: (script, line) => [
    'zsh',
    '-f',
    '-c',
    `compdef() { :; }; _files() { :; }; _describe() { printf '%s\\n' $found; }\n${script}\nwords=(${line.join(' ')}); CURRENT=${line.length}; _x0x`,
  ],
  fish: (script, line) => ['fish', '-N', '-c', `${script}\ncomplete -C '${line.join(' ')}'`],
}

const AGENT = 'ab'.repeat(32)

/** A daemon that knows bob and has seen another agent, whose name tries to add a word. */
const knowing = async (t: TestContext): Promise<string> => {
  const answers: Readonly<Record<string, object>> = {
    '/contacts': { contacts: [{ name: 'bob', agent_id: 'cd'.repeat(32), trust: 'trusted', machines: [], labels: {} }], groups: [] },
    '/peers': { peers: [{ agent_id: AGENT, machine_id: AGENT, name: 'evil\nbox\trm:x' }] },
  }
  const { dir } = await fakeDaemon(t, ({ path }, response) => json(response, 200, answers[path] ?? {}))
  return dir
}

for (const shell of SHELLS)
  test(`${shell} completes commands and the daemon's contacts with the script that x0x completion prints`, async (t) => {
    const { stdout, status } = await runCli(['completion', shell])
    assert.deepEqual([status, stdout], [0, COMPLETION_SCRIPTS[shell]])
    const env = await commandInPath(t)
    const ask = async (...line: readonly string[]): Promise<string[]> => {
      const [file = '', ...args] = ASKING[shell](stdout, line)
      const answer = await promisify(execFile)(file, args, { encoding: 'utf8', env })
      return answer.stdout.split('\n').flatMap((found) => (found.trim() === '' ? [] : [/^[\w.-]+/.exec(found)?.[0] ?? found]))
    }
    if (spawnSync(shell, ['--version']).error !== undefined) return t.skip(`${shell} is not installed`)
    assert.deepEqual(await ask('x0x', 'contacts', 'p'), ['pin'])
    const dir = await knowing(t)
    // The program waits 0.5 s for its daemon, which is this process. On a busy machine it can be slower.
    const comesTo = async (expected: string[], ...line: readonly string[]): Promise<void> =>
      until(async () => isDeepStrictEqual(await ask('x0x', '--data-dir', dir, ...line), expected))
    await comesTo(['bob'], 'exec', 'b')
    await comesTo([AGENT], 'ping', 'ab')
  })

test('completion asks only the daemon for names, and stays silent if the daemon does not answer', async (t) => {
  const dir = await knowing(t)
  const asked = async (...line: string[]) => runCli(['completion', 'words', '--', 'x0x', '--data-dir', dir, ...line])
  const comesTo = async (expected: string, ...line: string[]): Promise<void> =>
    until(async () => (await asked(...line)).stdout === expected)
  await comesTo(
    `sessions\tList runs that have not ended
watch\tLook on at a command that another agent runs
cancel\tStop a run, or all runs of a fan-out
bob\ttrusted
${AGENT}\tevil\\nbox rm x
`,
    'exec',
    '',
  )
  assert.equal((await asked('contacts', 'pin', 'bob', '')).stdout, '')
  assert.equal((await asked('contacts', 'trust', 'bob', 'k')).stdout, 'known\t\n')
  await comesTo(`${AGENT}\tevil\\nbox rm x\n`, 'trust', 'evaluate', AGENT, 'a')
  const { status, stdout, stderr } = await runCli(['completion', 'words', '--', 'x0x', '--data-dir', `${dir}/none`, 'ping', ''])
  assert.deepEqual([status, stdout, stderr], [0, '', ''])
  const mute = await fakeDaemon(t, () => undefined)
  const late = await runCli(['completion', 'words', '--', 'x0x', '--data-dir', mute.dir, 'ping', ''])
  assert.deepEqual([late.status, late.stdout, late.stderr], [0, '', ''])
})

test('x0x suggests a separate program for a misspelt name, and refuses global options before its name', async () => {
  const misspelt = await runCli(['bundel'])
  assert.deepEqual([misspelt.status, misspelt.stderr.includes('Did you mean bundle?')], [2, true])
  for (const own of [[], ['--output', 'x'], ['--unknown']]) {
    const behind = await runCli(['--name', 'lab', 'bundle', ...own])
    assert.equal(behind.status, 2)
    assert.match(
      behind.stderr,
      /global options are not supported before "bundle"; set X0X_DATA_DIR or X0X_NAME instead\n +See: x0x bundle --help/,
    )
  }
})

test('completion refuses an unknown shell and names the supported ones', async () => {
  const { status, stderr } = await runCli(['completion', 'tcsh'])
  assert.equal(status, 2)
  assert.match(stderr, /one of bash, zsh, fish/)
})

test('each manual page begins with its program, the release date and the version', () => {
  for (const page of [[X0X], [X0XD], [REXD, REXD_EXEC], [REXEC]] as const)
    assert.match(manualPage(page), new RegExp(`^\\.TH ${page[0].name.toUpperCase()} 1 "20\\d\\d-[01]\\d-[0-3]\\d" "x0x ${VERSION}"\n`))
  assert.ok(new Date(RELEASED).getTime() > Date.parse('2026-01-01'))
})
