import { writeFile } from 'node:fs/promises'
import { dirname, join } from 'node:path'

import { shellWords } from '../src/base/format.ts'
import { CLI, isRunning, MeshOfDaemons, until, type AclEntry, type CliResult, type TestDaemon } from '../test/support/mesh-of-daemons.ts'
import { showAgent } from './demo-agent.ts'
import { filesTable, showFiles } from './demo-files.ts'
import { showFleet } from './demo-fleet.ts'
import { showRexd } from './demo-rexd.ts'
import { Stage } from './stage.ts'

/** `npm run demo` starts alice, bob and charlie, three real daemons on this machine, and shows what each may do on the others. */

interface Cast {
  readonly alice: TestDaemon
  readonly bob: TestDaemon
  readonly charlie: TestDaemon
}

interface Programs {
  /** A program that prints lines forever. */
  readonly ticker: string
  /** `x0x` as installed on the remote machine. */
  readonly x0x: string
}

const stage = new Stage()
const keep = process.argv.slice(2).includes('--keep')
const env = { NO_COLOR: '1' }

const timed = async <T>(work: Promise<T>): Promise<[T, number]> => {
  const began = performance.now()
  return [await work, performance.now() - began]
}

const shown = ({ stdout, stderr }: CliResult): string => stdout.toString() + stderr

/** Runs a command and prints it. `line` is the command with shorter paths. */
const show = async (who: TestDaemon, argv: readonly string[], line = `x0x ${shellWords(argv)}`): Promise<CliResult> => {
  const result = await who.cli(argv, { env })
  stage.command(who.name, line, shown(result))
  return result
}

const showExec = async (who: TestDaemon, argv: readonly string[]): Promise<CliResult> => show(who, ['exec', 'bob', '--', ...argv])

const denied = async (who: TestDaemon, argv: readonly string[], reason: string, text: string): Promise<void> => {
  const result = await showExec(who, argv)
  stage.expect(
    `${text}: ${reason}, exit status 255`,
    result.status === 255 && result.stderr.includes(reason) && result.stdout.length === 0,
    result.ms,
  )
}

const makePrograms = async (mesh: MeshOfDaemons): Promise<Programs> => ({
  ticker: await mesh.program('ticker', 'i=0\nwhile :; do i=$((i+1)); echo "tick $i"; sleep 0.2; done'),
  x0x: await mesh.program('x0x', `exec '${process.execPath}' '${CLI}' "$@"`),
})

const startDaemons = async ({ alice, bob, charlie }: Cast): Promise<void> => {
  stage.section('Three daemons, each with its own keys')
  for (const daemon of [alice, bob, charlie]) {
    const [, ms] = await timed(daemon.start())
    stage.expect(
      `${daemon.name.padEnd(8)} agent ${daemon.agentId.slice(0, 12)}  machine ${daemon.machineId.slice(0, 12)}  ${daemon.multiaddr}`,
      daemon.running,
      ms,
    )
  }
}

/** The commands that bob allows alice, and those that he lets her list. */
const allowed = ({ alice, bob }: Pick<Cast, 'alice' | 'bob'>, programs: Programs, told: readonly (readonly string[])[]): AclEntry[] => [
  {
    agent: alice,
    commands: [['echo', '<INT>'], ...told],
    description: 'Says what it is given. Changes nothing.',
    keys: 'discoverable = true\n',
  },
  {
    agent: alice,
    commands: [[programs.ticker], [programs.x0x, '--data-dir', bob.dir, 'diagnostics', 'exec', '--json']],
    keys: filesTable(dirname(bob.dir)),
  },
]

const introduce = async ({ alice, bob, charlie }: Cast, programs: Programs): Promise<void> => {
  stage.section('Contacts: signed cards, trust and pins')
  await bob.writeAcl(allowed({ alice, bob }, programs, [['printenv', 'PATH']]))
  const [, ms] = await timed(bob.restart())
  stage.rows([
    ["bob's ACL:", 'alice, on her machine, may run', 'echo <INT>'],
    ['', '', 'printenv PATH'],
    ['', '', 'ticker'],
    ['', '', 'x0x --data-dir … diagnostics exec --json'],
    ['', 'may read and write files below', '/srv/site'],
  ])
  stage.expect('bob restarted, because new permissions are loaded only at start', bob.running, ms)
  const link = (await bob.ok('card')).trim()
  for (const guest of [alice, charlie]) {
    const result = await show(guest, ['contacts', 'import', link, '--as', 'bob'], `x0x contacts import ${link.slice(0, 28)}… --as bob`)
    await guest.ok('contacts', 'trust', 'bob', 'known')
    stage.expect(`${guest.name} knows bob`, result.status === 0, result.ms)
  }
  for (const guest of [alice, charlie]) {
    const card = (await guest.ok('card')).trim()
    await bob.ok('contacts', 'import', card, '--as', guest.name)
    await bob.ok('contacts', 'trust', guest.name, 'trusted')
    const result = await show(
      bob,
      ['contacts', 'pin', guest.name, guest.machineId],
      `x0x contacts pin ${guest.name} ${guest.machineId.slice(0, 12)}…`,
    )
    stage.expect(`bob trusts ${guest.name} on that machine only`, result.status === 0 && result.stdout.includes('trusted'), result.ms)
  }
}

const showAllowed = async ({ alice }: Cast): Promise<void> => {
  stage.section('Allowed: exactly what the ACL lists')
  const first = await showExec(alice, ['echo', '42'])
  stage.expect(
    '42, exit status 0; both agents and both machines were authenticated first',
    first.status === 0 && first.stdout.toString() === '42\n',
    first.ms,
  )
  const second = await showExec(alice, ['echo', '7'])
  stage.expect('again, over the same link', second.status === 0 && second.stdout.toString() === '7\n', second.ms)
  const path = await showExec(alice, ['printenv', 'PATH'])
  stage.expect('the command does not inherit the PATH of the daemon', path.status === 0 && path.stdout.toString() === SCRUBBED, path.ms)
}

const SCRUBBED = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n'

const showDenied = async ({ alice, charlie }: Cast): Promise<void> => {
  stage.section('Denied: everything else')
  await denied(alice, ['echo', 'hello'], 'argv_not_allowed', 'hello is not an <INT>')
  await denied(alice, ['echo', '99', ';', 'ls'], 'shell_metachar_in_argv', 'x0x uses no shell, and also denies its characters')
  await denied(alice, ['rm', '-rf', '/'], 'argv_not_allowed', 'not in the ACL')
  await denied(charlie, ['echo', '42'], 'agent_machine_not_in_acl', 'bob trusts charlie, but no ACL entry names him')
}

const showCancel = async ({ alice, bob }: Cast, programs: Programs): Promise<void> => {
  stage.section('Cancelled: Ctrl-C on alice ends the process on bob')
  const running = alice.startCli(['exec', 'bob', '--', programs.ticker], { env })
  await running.printed('tick 3')
  const started = (await bob.journal()).findLast((line) => line.event === 'started')
  const pid = Number(started?.['pid'])
  const alive = isRunning(pid)
  const pressed = performance.now()
  running.child.kill('SIGINT')
  const result = await running.finished
  const ms = performance.now() - pressed
  stage.command('alice', 'x0x exec bob -- ticker', `${result.stdout.toString()}^C\n${result.stderr}`)
  stage.expect(`each line arrived as soon as process ${pid} on bob printed it`, alive && result.stdout.includes('tick 3'))
  stage.expect('SIGTERM ended the process, exit status 128 + 15', result.status === 143 && !isRunning(pid), ms)
}

interface Totals {
  readonly totals: {
    readonly requests_received: number
    readonly requests_allowed: number
    readonly requests_denied: number
    readonly sessions_cancelled: number
  }
}

const counters = ({ totals }: Totals): string =>
  `received ${totals.requests_received}, allowed ${totals.requests_allowed}, denied ${totals.requests_denied}, cancelled ${totals.sessions_cancelled}`

const showEvidence = async ({ alice, bob }: Cast, programs: Programs): Promise<void> => {
  stage.section('Evidence: the counters and the audit log of bob')
  const remote = await alice.exec('bob', [programs.x0x, '--data-dir', bob.dir, 'diagnostics', 'exec', '--json'], [], { env })
  const seen = remote.status === 0 ? counters(JSON.parse(remote.stdout.toString()) as Totals) : remote.stderr
  stage.command('alice', 'x0x exec bob -- x0x --data-dir … diagnostics exec --json', seen)
  stage.expect(
    'alice reads the counters of bob: 9 requests, 5 allowed, 4 denied, 1 cancelled',
    seen === 'received 9, allowed 5, denied 4, cancelled 1',
    remote.ms,
  )
  const journal = await show(bob, ['audit', 'verify'])
  stage.expect(
    'no break: each line holds the hash of the line before it, and lines not signed yet are counted',
    journal.status === 0,
    journal.ms,
  )
  const tail = await bob.cli(['audit', 'tail', '-n', '200'], { env })
  stage.command(
    'bob',
    'x0x audit tail | grep denial',
    tail.stdout
      .toString()
      .split('\n')
      .filter((line) => line.includes('  denial  '))
      .join('\n'),
  )
  const events = (await bob.journal()).map((line) => line.event)
  stage.expect('the audit log has all four denials', events.filter((event) => event === 'denial').length === 4)
}

interface PeersAnswer {
  readonly peers: readonly { readonly agent_id: string | null }[]
}

const showDiscovery = async ({ alice, charlie }: Cast): Promise<void> => {
  stage.section('Discovery: alice and charlie find each other through bob')
  const knows = async (who: TestDaemon, whom: TestDaemon): Promise<boolean> =>
    (await who.json<PeersAnswer>('peers')).peers.some((peer) => peer.agent_id === whom.agentId)
  const [, ms] = await timed(
    until('alice and charlie hear of each other', async () => (await knows(alice, charlie)) && (await knows(charlie, alice))),
  )
  await show(alice, ['peers'])
  stage.expect('bob forwarded their presence messages and signed cards', true, ms)
  const id = charlie.agentId.slice(0, 12)
  const result = await show(alice, ['exec', id, '--', 'echo', '42'])
  stage.expect(
    'alice reaches charlie, who denies the request because he does not trust her',
    result.status === 255 && result.stderr.includes('trust_rejected'),
    result.ms,
  )
}

const printHowToGoOn = async (mesh: MeshOfDaemons, cast: Cast): Promise<void> => {
  const stop = join(mesh.root, 'stop')
  await writeFile(
    stop,
    `#!/bin/sh\nkill ${Object.values(cast)
      .map((daemon: TestDaemon) => daemon.pid)
      .join(' ')}\nsleep 1\nrm -rf '${mesh.root}'\n`,
    { mode: 0o755 },
  )
  stage.section('The daemons continue to run')
  stage.note('as alice:        '.concat(`npx x0x --data-dir ${cast.alice.dir} exec bob -- echo 42`))
  stage.note('as bob:          '.concat(`npx x0x --data-dir ${cast.bob.dir} audit tail --follow`))
  stage.note('as charlie:      '.concat(`npx x0x --data-dir ${cast.charlie.dir} peers`))
  stage.note("bob's ACL:       ".concat(cast.bob.aclFile))
  stage.note('stop and remove: '.concat(stop))
}

const play = async (mesh: MeshOfDaemons): Promise<void> => {
  const options = { detached: keep }
  const cast: Cast = { alice: mesh.add('alice', options), bob: mesh.add('bob', options), charlie: mesh.add('charlie', options) }
  stage.title('x0x', 'commands on other machines: no SSH, no broker, no shell')
  const programs = await makePrograms(mesh)
  await startDaemons(cast)
  await introduce(cast, programs)
  await showAllowed(cast)
  await showDenied(cast)
  await showCancel(cast, programs)
  await showEvidence(cast, programs)
  await showFiles(stage, cast, mesh.root)
  await showDiscovery(cast)
  await showFleet(stage, cast, mesh.root)
  await showRexd(stage, cast.alice, mesh.root)
  await showAgent(stage, cast.alice, mesh.root, async () => {
    await cast.bob.writeAcl(allowed(cast, programs, []))
    await cast.bob.restart()
  })
  if (keep) await printHowToGoOn(mesh, cast)
}

const main = async (): Promise<number> => {
  const mesh = await MeshOfDaemons.create('x0x-demo-')
  const leave = (): void => void mesh.stop().finally(() => process.exit(130))
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, leave)
  let played = false
  try {
    await play(mesh)
    played = true
  } finally {
    if (!keep || !played) {
      const [, ms] = await timed(mesh.stop())
      stage.section('Afterwards')
      stage.expect('the daemons stopped, and their processes and files are gone', true, ms)
    }
  }
  stage.close()
  if (stage.failed === 0 && !keep) process.stdout.write('\nNext: docs/quickstart.md. To keep the three daemons: npm run demo -- --keep\n')
  return stage.failed === 0 ? 0 : 1
}

const status = await main()
// Daemons that keep running hold the pipes of this process open, so exit explicitly.
process.exit(status)
