import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { test, type TestContext } from 'node:test'

import { certainlyDidNotRun } from '../src/programs/x0x/fleet/ledger-state.ts'
import type { RequestedHost } from '../src/programs/x0x/fleet/ledger-state.ts'
import { longOrShort } from '../test/support/campaign.ts'
import { until, type RunningCli } from '../test/support/mesh-of-daemons.ts'
import { Dice } from './chaos/dice.ts'
import { answerOf, assertAddsUp, assertJournalsAgree, assertLedgerSays } from './fleet-chaos/aftermath.ts'
import { planned } from './fleet-chaos/plan.ts'
import { deedsOf, FleetWorld, hasBegun, journalOf, type Host } from './fleet-chaos/world.ts'

// One command for many hosts. Some of them are dead, deny, are slow, are killed or cut off in the middle, or end after the deadline.
// FLEET_CHAOS_SEED repeats the decisions of a run.

const GIVEN = process.env['FLEET_CHAOS_SEED']
/** A pause of this process that can make its daemons miss enough of a lease. */
const HELD_UP_NS = 1e9
const SEED = GIVEN === undefined ? randomInt(2 ** 31) : Number(GIVEN)
const REAL = longOrShort(12, 4)
const IN_PROCESS = longOrShort(60, 12)
const DEADLINE_S = longOrShort(15, 6)

/** Kills or cuts each host when its command runs, except where the command has already ended. Resolves when all is done. */
const makeTrouble = async (world: FleetWorld, running: RunningCli): Promise<void> => {
  let isOver = false
  const over = running.finished.then(() => void (isOver = true))
  const strike = async (host: Host): Promise<void> => {
    await until(`${host.name} runs it`, () => isOver || hasBegun(host), 120_000)
    const { daemon, proxy, fate } = host
    if (isOver || daemon === null) return
    if (fate === 'killed') {
      const network = await daemon.networkPid()
      await daemon.stop('SIGKILL')
      await until('its network half is gone', () => ended(network))
    } else if (fate === 'halved') process.kill(await daemon.networkPid(), 'SIGKILL')
    else if (fate === 'cut') proxy?.refuse()
    else if (fate === 'blinks') proxy?.cut()
  }
  await Promise.all([over, ...world.hosts.map(strike)])
}

const ended = (pid: number): boolean => {
  try {
    process.kill(pid, 0)
    return false
  } catch {
    return true
  }
}

/** Starts every host again, makes it reachable, and makes its command end at once. */
const makePeace = async ({ hosts }: FleetWorld): Promise<void> => {
  for (const host of hosts) {
    if (host.fate === 'dead' || (host.fate === 'killed' && host.daemon?.running === false)) await host.start()
    host.proxy?.allow()
    await writeFile(join(host.dir, 'fate'), 'exit 0')
  }
}

/** Whether the audit log has the end of each run that began, also of a run that the requester lost. */
const settled = async (host: Host): Promise<boolean> => {
  const events = (await journalOf(host)).map(({ event }) => event)
  const count = (...names: string[]): number => events.filter((event) => names.includes(event)).length
  return count('request') === count('exit', 'lost')
}

/** Retries until only the denying hosts are left, and checks the ledger and the audit logs after each round. */
const retryAll = async (world: FleetWorld, path: string, first: readonly RequestedHost[], unheard: ReadonlySet<string>): Promise<void> => {
  const rounds = [first]
  await until(
    'all were reached that do not deny',
    async () => {
      const before = await assertLedgerSays(path, { hosts: [] } as never)
      const expected = before.ends.filter(certainlyDidNotRun).map(({ host }) => host)
      const result = await world.requester.cli(['exec', '--retry', path, '--json', '--deadline', '30'])
      const answer = answerOf(result)
      const after = await assertLedgerSays(path, answer)
      assertAddsUp(answer, expected, result.status, after.ledger)
      rounds.push(after.hosts.filter(({ host }) => expected.includes(host)))
      await until('every run over there has ended', async () => (await Promise.all(world.hosts.map(settled))).every(Boolean))
      await assertJournalsAgree(world, after.ends, rounds, false, unheard)
      return after.ends.filter(certainlyDidNotRun).every(({ host }) => world.host(host).fate === 'denied')
    },
    120_000,
  )
}

const chaos = async (t: TestContext, seed: number): Promise<void> => {
  const dice = new Dice(seed)
  const world = await FleetWorld.create(t, planned(dice, REAL, IN_PROCESS))
  const path = join(world.mesh.root, 'chaos.ledger')
  // With a low parallelism, the deadline comes before some hosts start.
  const parallel = String(dice.pick([6, 16, 64]))
  const words = ['exec', `node[1-${IN_PROCESS}]`, `real[1-${REAL}]`]
  if (dice.chance(0.5)) words.push(words.splice(1, 1)[0]!)
  const running = world.requester.startCli([
    ...words,
    `--parallel=${parallel}`,
    `--deadline=${DEADLINE_S}`,
    `--ledger=${path}`,
    '--json',
    '--',
    world.deed,
  ])
  const delay = monitorEventLoopDelay()
  delay.enable()
  await makeTrouble(world, running)
  const result = await running.finished
  delay.disable()
  const heldUp = delay.max > HELD_UP_NS
  const answer = answerOf(result)
  const { ends, hosts, ledger } = await assertLedgerSays(path, answer)
  const { fanout_id: _id, ok: _ok, ...sums } = ledger
  t.diagnostic(
    `${parallel} at a time: ${JSON.stringify(sums)}, ${Math.round(result.ms)} ms, this process held up for ${Math.round(delay.max / 1e6)} ms`,
  )
  assertAddsUp(
    answer,
    world.hosts.map(({ name }) => name),
    result.status,
  )
  const before = await Promise.all(world.hosts.map(deedsOf))
  await assertJournalsAgree(world, ends, [hosts], heldUp)
  const unheard = new Set(ends.filter(({ end }) => end === 'unknown').map(({ host }) => host))
  await makePeace(world)
  await retryAll(world, path, hosts, unheard)
  const deeds = await Promise.all(world.hosts.map(deedsOf))
  for (const [at, host] of world.hosts.entries()) {
    const end = (await assertLedgerSays(path, answerless)).ends.find(({ host: name }) => name === host.name)!
    assert.ok(deeds[at]! <= 1 && deeds[at]! >= before[at]!, `${host.name} ran it ${deeds[at]} times`)
    if (end.end === 'ran') assert.equal(deeds[at], 1, host.name)
    if (certainlyDidNotRun(end)) assert.equal(deeds[at], 0, host.name)
  }
}

const answerless = { hosts: [] } as never

test(
  'with dead, denying, slow, killed and cut-off hosts the ledger agrees with every audit log, and no command runs twice',
  { timeout: 300_000 },
  async (t) => {
    t.diagnostic(`FLEET_CHAOS_SEED=${SEED}: ${REAL} daemons, ${IN_PROCESS} in process`)
    try {
      await chaos(t, SEED)
    } catch (error) {
      throw new Error(`FLEET_CHAOS_SEED=${SEED}: ${error instanceof Error ? error.message : String(error)}`, { cause: error })
    }
  },
)
