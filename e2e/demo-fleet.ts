import { rm } from 'node:fs/promises'
import { join } from 'node:path'

import { readLedger } from '../src/programs/x0x/fleet/ledger-file.ts'
import type { CliResult, TestDaemon } from '../test/support/mesh-of-daemons.ts'
import type { Stage } from './stage.ts'

export interface Fleet {
  readonly alice: TestDaemon
  readonly bob: TestDaemon
  readonly charlie: TestDaemon
}

/** Charlie lets alice run one command, as bob does. Alice saves him as a contact. */
const enlist = async ({ alice, charlie }: Fleet): Promise<void> => {
  await charlie.writeAcl([{ agent: alice, commands: [['echo', '<INT>']] }])
  await charlie.restart()
  await charlie.meet(alice, 'trusted')
  await alice.meet(charlie, 'known')
}

const timesRun = async (host: TestDaemon, word: string): Promise<number> =>
  (await host.journal()).filter(({ event, argv }) => event === 'request' && Array.isArray(argv) && argv.at(-1) === word).length

/** Runs one command on several machines, groups equal outputs, and writes a ledger of the results. */
export const showFleet = async (stage: Stage, cast: Fleet, root: string): Promise<void> => {
  const { alice, bob, charlie } = cast
  stage.section('Fleets: one command on many hosts, grouped output, and a ledger')
  await enlist(cast)
  const ledger = join(root, 'deploy.ledger')
  const show = async (...words: readonly string[]): Promise<CliResult> => {
    const result = await alice.cli(['exec', ...words], { env: { NO_COLOR: '1' } })
    const line = `x0x exec ${words.join(' ')}`.replaceAll(ledger, 'deploy.ledger')
    stage.command('alice', line, (result.stdout.toString() + result.stderr).replaceAll(ledger, 'deploy.ledger'))
    return result
  }
  const folded = await show('bob', 'charlie', '--group', '--', 'echo', '42')
  stage.expect(
    'both ran it, and their equal output is printed once',
    folded.status === 0 && folded.stdout.toString() === 'bob,charlie (2): 42\n',
    folded.ms,
  )
  await charlie.stop()
  const partly = await show('bob', 'charlie', '--ledger', ledger, '--', 'echo', '2026')
  const ends = (await readLedger(ledger)).state.ends().map(({ host, end }) => `${host} ${end}`)
  stage.expect(
    'charlie is stopped: exit status 3; the ledger says that bob ran it and charlie was unreachable',
    partly.status === 3 && ends.join() === 'bob ran,charlie unreachable',
    partly.ms,
  )
  await charlie.start()
  const again = await show('--retry', ledger)
  stage.expect('charlie runs again, and the retry asks only charlie: exit status 0', again.status === 0, again.ms)
  const times = [await timesRun(bob, '2026'), await timesRun(charlie, '2026')]
  stage.expect('the audit logs show that it ran once on each host', times.join() === '1,1')
  await rm(ledger)
}
