import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { after, before, test } from 'node:test'

import { AppError } from '../src/base/errors.ts'
import type { CommandSpec } from '../src/cli/command.ts'
import { parseCommandLine, type CommandLine } from '../src/cli/parse.ts'
import { programLine } from '../src/cli/program-line.ts'
import { BUNDLE, DESK, MCP, UI, X0XD } from '../src/cli/programs.ts'
import { REXD, REXD_EXEC } from '../src/cli/rexd.ts'
import { rexecLine } from '../src/cli/rexec.ts'
import { X0X } from '../src/cli/x0x.ts'
import { bundleFlags } from '../src/programs/bundle/collect.ts'
import { deskFlags } from '../src/programs/desk/main.ts'
import { mcpFlags } from '../src/programs/mcp/flags.ts'
import { rexdExecFlags } from '../src/programs/rexd/exec.ts'
import { rexdFlags } from '../src/programs/rexd/serve.ts'
import { uiFlags } from '../src/programs/ui/page-sources.ts'
import { daemonFlags } from '../src/programs/x0xd/main.ts'
import { blocksOf, PAGES, pageText, Stage, type Block, type Call } from '../test/support/documented.ts'
import { runCli } from '../test/support/fake-daemon.ts'
import { MeshOfDaemons, type TestDaemon } from '../test/support/mesh-of-daemons.ts'

// Checks every shell line in the README and in docs. The parser of each x0x program reads its commands, and a daemon answers those that
// need one. All other programs are listed below with the reason why they are not run.

const { rexecWords } = createRequire(import.meta.url)('../deploy/bin/console-words.cjs') as { rexecWords(words: string[]): string[] }

/** Other programs in these lines. A program that no line uses fails the test. */
const NOT_RUN: Readonly<Record<string, string>> = {
  cat: 'reads a token for curl',
  curl: 'asks what test/doors and e2e/openapi.test.ts ask of real doors',
  docker: 'no engine on a test machine; the three nodes are tried by npm run packages -- --check',
  'dpkg-deb': 'builds the package of a reader',
  git: 'changes of whoever reads it',
  install: 'copies a file to the system',
  journalctl: 'needs a unit of ours in a journal of systemd',
  jq: 'reads what x0x prints',
  kubectl: 'needs a cluster',
  less: 'needs a reader',
  man: 'shows a page that test/cli/table.test.ts has a formatter take',
  mkdir: 'of a restore, which e2e/keys.test.ts does',
  mv: 'renames a file for a collector',
  npm: 'demo and test are steps of .ci/run, its packages are installed by npm run packages -- --check',
  scp: 'needs another machine',
  sha256sum: 'needs the packages, which npm run packages -- --check compares',
  ssh: 'needs another machine; what is run there is read as a line of here',
  sudo: 'changes the system: apt, units and files of root, tried by e2e/campaign and npm run packages -- --check',
  sudoedit: 'needs an editor',
  systemctl: 'needs units of ours in a systemd that was booted: e2e/campaign',
  'systemd-creds': 'seals to a machine',
  tar: 'a stdin for whoever stands behind it',
}

type Parse = (argv: readonly string[]) => unknown

const refuse = (problem: string, command: string): AppError => new AppError('bad_request', `${command}: ${problem}`)
const readLine = (argv: readonly string[]): CommandLine | null => {
  const parsed = parseCommandLine(X0X, argv, refuse)
  assert.ok(parsed.kind !== 'help' || parsed.asked, 'a group without one of its commands')
  return parsed.kind === 'line' ? parsed.line : null
}

const parserOf =
  (program: CommandSpec, flagsOf: (line: CommandLine) => unknown): Parse =>
  (argv) => {
    const line = programLine(program, argv)
    return typeof line === 'string' ? line : flagsOf(line)
  }

const PROGRAMS: Readonly<Record<string, Parse>> = {
  x0x: readLine,
  'x0x mcp': parserOf(MCP, mcpFlags),
  'x0x ui': parserOf(UI, (line) => uiFlags(line, {})),
  'x0x desk': parserOf(DESK, (line) => deskFlags(line, {})),
  'x0x bundle': parserOf(BUNDLE, bundleFlags),
  'x0x rexd': parserOf(REXD, rexdFlags),
  'x0x console': (argv) => rexecLine(rexecWords([...argv])),
  x0xd: parserOf(X0XD, daemonFlags),
  rexd: parserOf(REXD, rexdFlags),
  'rexd exec': parserOf(REXD_EXEC, rexdExecFlags),
  rexec: rexecLine,
}
const OURS = ['x0x', 'x0xd', 'rexd', 'rexec']

/** Throws the error that the program would print for its command line. */
const parseCall = ([name, ...argv]: Call): void => {
  const longer = `${name} ${argv[0]}`
  if (PROGRAMS[longer] === undefined) PROGRAMS[name]?.(argv)
  else PROGRAMS[longer](argv.slice(1))
}

/** Index of the x0x program that this call runs elsewhere: as another user, on another machine or node, or after `x0x exec`. */
const carriedAt = ([name, ...argv]: Call): number => {
  if (name === 'x0x') return argv[0] === 'exec' && argv.includes('--') ? argv.indexOf('--') + 1 : -1
  if (name === 'sudo') return argv[0] === '-u' ? 2 : 0
  return ['ssh', 'docker'].includes(name) ? argv.findIndex((word) => OURS.includes(word)) : -1
}

const carried = (call: Call): Call | null => {
  const words = call.slice(1 + carriedAt(call))
  return carriedAt(call) >= 0 && OURS.includes(words[0] ?? '') ? (words as unknown as Call) : null
}

const callsOf = async (stage: Stage, block: Block): Promise<Call[]> =>
  (await stage.calls(block)).flatMap((call) => [call, ...[carried(call)].filter((one) => one !== null)])

const blocks = PAGES.flatMap((page) => blocksOf(page, pageText(page)))
const all: { readonly at: string; readonly call: Call }[] = []

let mesh: MeshOfDaemons

before(async () => {
  mesh = await MeshOfDaemons.create('x0x-documented-')
  const stage = await Stage.create(join(mesh.root, 'stage'), [...OURS, ...Object.keys(NOT_RUN)])
  for (const block of blocks) all.push(...(await callsOf(stage, block)).map((call) => ({ at: block.at, call })))
})

after(async () => mesh.stop())

test('every shell line in the README and in docs is valid for its program', () => {
  assert.ok(blocks.length > 50 && all.length > 150, `${blocks.length} blocks, ${all.length} calls`)
  const wrong = all.flatMap(({ at, call }) => {
    try {
      parseCall(call)
      return []
    } catch (error) {
      return [`${at}: ${call.join(' ')}: ${(error as Error).message}`]
    }
  })
  assert.deepEqual(wrong, [])
})

test('every program that is not run has a reason, and every reason belongs to a program of the docs', () => {
  const others = new Set(all.map(({ call: [name] }) => name).filter((name) => !OURS.includes(name)))
  assert.deepEqual([...others].sort(), Object.keys(NOT_RUN).sort())
})

/** A command in a sentence, such as `x0x acl diff FILE`. It may lack its arguments. */
const INLINE = /(?<!`)`((?:x0xd?|rexd|rexec) [^`\n]+)`(?!`)/g
const IS_FALSE = /unknown (command|option)|cannot be used/

test('every command that a sentence names exists, with its options', () => {
  const wrong = PAGES.flatMap((page) =>
    [...pageText(page).matchAll(INLINE)].flatMap(([, text = '']) => {
      try {
        parseCall(text.replaceAll(/ \[(options|command)\]| \| .*| [0-9]?[>&].*|[[\]'"]/g, '').split(' ') as unknown as Call)
        return []
      } catch (error) {
        const { message } = error as Error
        return IS_FALSE.test(message) ? [`${page}: ${text}: ${message}`] : []
      }
    }),
  )
  assert.deepEqual(wrong, [])
})

/** Commands of x0x that this file parses but does not send to a daemon. */
const NOT_ASKED: Readonly<Record<string, string>> = {
  init: 'makes a data directory: e2e/first-minutes.test.ts',
  invite: 'waits for a human: e2e/first-minutes.test.ts',
  join: 'waits for a human: e2e/first-minutes.test.ts',
  'keys rotate': 'of a daemon that is stopped: e2e/keys.test.ts',
  replay: 'reads a record: test/doors/mcp',
  'approvals watch': 'waits for a human: e2e/approvals',
  'direct listen': 'has no end: test/programs/x0x/main.test.ts',
  'transcripts list': 'reads the home of its user: test/doors/console',
  'transcripts print': 'the same',
  'transcripts follow': 'the same',
  'transcripts play': 'reads recordings: e2e/terminals-observed.test.ts',
}

/** Expected failures of commands that need something the stage does not have. Each must happen at least once. */
const NOT_THERE: readonly { readonly status: number; readonly said: RegExp; readonly what: string }[] = [
  { status: 255, said: /argv_not_allowed/, what: 'a program that not every machine has is in no ACL here' },
  { status: 1, said: /^reason +argv_not_allowed$/m, what: 'nor would it be allowed' },
  { status: 2, said: /\/etc\/x0x\/exec-acl\.toml: no such file/, what: 'the ACL of a package' },
  { status: 1, said: /no active run or fan-out has that ID/, what: 'a run that goes on' },
  { status: 1, said: /no (approval request|grant) matches/, what: 'a question that waits' },
  { status: 1, said: /no detached run (matches|has the)/, what: 'a detached run' },
  { status: 1, said: /no run of another agent on this machine matches/, what: 'a run to look on at' },
  { status: 255, said: /no detached run (matches|has the)/, what: 'one whose status is waited for' },
  { status: 1, said: /no program listens/, what: 'somebody who listens' },
  // e2e/fleet-command.test.ts tests fan-outs.
  { status: 255, said: /no contact matches web|unknown group @/, what: 'a fleet that is asked' },
  {
    status: 255,
    said: /no contact (matches "web|has the label role)/,
    what: 'a fleet that is selected',
  },
  { status: 2, said: /standard input is not a terminal/, what: 'a terminal of the reader' },
  { status: 2, said: /(deploy|copy)\.ledger: no such file/, what: 'a ledger of it' },
  { status: 255, said: /app\.tar: no such file/, what: 'a file to copy to a fleet' },
  { status: 2, said: /is not signed, and --signer requires a signature/, what: 'a signed ACL' },
  { status: 2, said: /web\.toml: no such file/, what: 'entries for a fleet' },
  { status: 1, said: /no enrolment key has the ID/, what: 'an enrolment key' },
]

const OTHERS = ['alice', 'bob', 'laptop', 'saorsa-7']

/** Replaces a placeholder of the docs by a value of the stage. */
const ofTheStage = (
  word: string,
  before: string,
  { agentId, machineId, name }: TestDaemon,
  file: (name: string) => string,
  card: string,
) => {
  if (OTHERS.includes(word) || word === 'NAME') return name
  if (before === 'import') return word === '-' ? word : card
  if (word.startsWith('3f2a')) return agentId
  if (word.startsWith('6e1f') || word === 'MACHINE') return machineId
  if (word === 'web.acl') return file('exec-acl.toml')
  return word === 'payload.bin' || word.includes('exec-acl.toml') ? file(word) : word
}

test('each x0x command that needs a daemon gets an answer with the expected status', async () => {
  const [alice, bob] = [mesh.add('alice'), mesh.add('bob')]
  await alice.start()
  const commands = [['echo', '<INT>'], ['df', '-h'], ['sha256sum'], ['hostname']]
  await bob.writeAcl([{ agent: alice, commands, keys: 'discoverable = true\n' }])
  await bob.start()
  await Promise.all([alice.meet(bob, 'trusted'), bob.meet(alice, 'trusted')])
  const cards = new Map(
    await Promise.all([alice, bob].map(async (one) => [one, (await one.get<{ link: string }>('/agent/card')).link] as const)),
  )
  const payload = join(mesh.root, 'payload.bin')
  await writeFile(payload, 'x')
  const unsaid = new Set(NOT_THERE)
  const unasked = new Set(Object.keys(NOT_ASKED))
  const wrong: string[] = []
  for (const { at, call } of all) {
    const [name, ...argv] = call
    if (name !== 'x0x' || PROGRAMS[`x0x ${argv[0]}`] !== undefined) continue
    const line = readLine(argv)
    unasked.delete(line?.command ?? '')
    if (line === null || line.command in NOT_ASKED || line.has('follow')) continue
    // Commands about an ACL run on bob, where that ACL is in force.
    const [here, other] = /^(acl (?!mine)|audit)/.test(line.command) ? [bob, alice] : [alice, bob]
    const card = cards.get(other) ?? ''
    const file = (word: string): string => (word === 'payload.bin' ? payload : bob.aclFile)
    const words = argv.map((word, i) => ofTheStage(word, argv[i - 1] ?? '', other, file, card))
    // Several pings would each wait for their interval.
    if (line.command === 'ping') words.push('-c', '1')
    const { status, stdout, stderr } = await runCli([...here.selector, ...words], { stdin: card })
    const lack = NOT_THERE.find((one) => one.status === status && one.said.test(stdout + stderr))
    if (lack === undefined && status !== 0) wrong.push(`${at}: ${call.join(' ')}: ${status} ${stdout}${stderr}`)
    if (lack !== undefined) unsaid.delete(lack)
  }
  assert.deepEqual(wrong, [])
  assert.deepEqual([[...unsaid].map(({ what }) => what), [...unasked]], [[], []])
})
