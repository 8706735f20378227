import assert from 'node:assert/strict'
import { randomInt } from 'node:crypto'
import { test, type TestContext } from 'node:test'

import { longOrShort } from '../test/support/campaign.ts'
import {
  assertHoldings,
  assertJournalled,
  assertJournalsWhole,
  assertNobodyLeft,
  assertNothingLeft,
  assertSlotsFree,
  assertStopped,
  assertTruthful,
  filesOf,
  holdingsOf,
  settle,
  warmUp,
} from './chaos/aftermath.ts'
import { Dice } from './chaos/dice.ts'
import { Mayhem, TROUBLES } from './chaos/mayhem.ts'
import { Requests } from './chaos/requests.ts'
import { World } from './chaos/world.ts'

// Random runs of three requesters on one target, while processes are killed and stopped and paths are cut. CHAOS_SEED repeats the decisions
// of a run, and CHAOS_SECONDS sets its length.

const SEED = Number(process.env['CHAOS_SEED'] ?? randomInt(2 ** 31))
const SECONDS = Number(process.env['CHAOS_SECONDS'] ?? longOrShort(40, 20))
/** One more than the concurrent runs that each requester may have. */
const LANES_PER_REQUESTER = 4
const TROUBLEMAKERS = 2
/** Long enough that each kind of trouble happens at least twice. */
const FULL_SECONDS = 60
const LEAST_OF_EACH = 2
/** Number of troubles that a failure lists, latest last. */
const TOLD = 60

const tally = (items: readonly string[]): string =>
  [...Map.groupBy(items, (item) => item)]
    .map(([item, same]) => `${item} ${same.length}`)
    .toSorted()
    .join(', ')

/** Adds the seed and the list of troubles to a failure. */
const checked = async <T>(what: string, mayhem: Mayhem, check: () => Promise<T> | T): Promise<T> => {
  try {
    return await check()
  } catch (error) {
    const story = mayhem.log.slice(-TOLD).join('\n')
    throw new Error(`seed ${SEED}: ${what}: ${error instanceof Error ? error.message : String(error)}\n${story}`, { cause: error })
  }
}

const chaos = async (t: TestContext, world: World, requests: Requests, mayhem: Mayhem): Promise<void> => {
  const end = performance.now() + SECONDS * 1_000
  const half = performance.now() + (SECONDS * 1_000) / 2
  const troubled = Array.from({ length: TROUBLEMAKERS }, async () =>
    mayhem.lane(
      () => performance.now() < end,
      () => performance.now() < half,
    ),
  )
  let goesOn = true
  const lanes = world.requesters.flatMap((requester) =>
    Array.from({ length: LANES_PER_REQUESTER }, async () => requests.lane(requester, () => goesOn)),
  )
  try {
    await Promise.all(troubled)
  } finally {
    goesOn = false
    mayhem.makePeace()
    await Promise.all(lanes)
  }
  t.diagnostic(`troubles: ${tally([...mayhem.done].flatMap(([kind, times]) => Array.from({ length: times }, () => kind)))}`)
  t.diagnostic(`programs: ${tally(requests.asked.map(({ plan }) => plan.name))}`)
  t.diagnostic(`answers: ${tally(requests.asked.map(({ answer }) => (answer.how === 'denied' ? `denied (${answer.why})` : answer.how)))}`)
  const refusals = requests.asked.flatMap(({ answer }) => (answer.how === 'refused' ? [answer.why.split('\n')[0]!.slice(0, 70)] : []))
  t.diagnostic(`refused: ${tally(refusals)}`)
  t.diagnostic(`${world.restartsInVain} starts in vain; programs ${world.strong ? 'cannot' : 'can'} escape`)
}

/** Fails if the test passed only because too little happened. */
const assertEnough = (requests: Requests, mayhem: Mayhem): void => {
  const least = SECONDS >= FULL_SECONDS ? LEAST_OF_EACH : 0
  for (const trouble of TROUBLES) assert.ok((mayhem.done.get(trouble) ?? 0) >= least, `too little of this: ${trouble}`)
  const counted = (...hows: readonly string[]): number => requests.asked.filter(({ answer }) => hows.includes(answer.how)).length
  assert.ok(counted('ended') >= SECONDS, `${counted('ended')} runs ended well`)
  assert.ok(counted('killed', 'forced') >= least, 'too few were killed')
  assert.ok(counted('denied') >= least, 'too few were denied')
  assert.ok(counted('incomplete', 'gone') >= least, 'too few were lost')
}

test(
  'every answer is true and nothing is left over while processes are killed and stopped and paths are cut',
  { timeout: (SECONDS + 300) * 1_000 },
  async (t) => {
    t.diagnostic(`CHAOS_SEED=${SEED} CHAOS_SECONDS=${SECONDS}`)
    const world = await World.create(t, SEED)
    const requests = new Requests(world, new Dice(SEED))
    const mayhem = new Mayhem(world, requests, new Dice(SEED + 1))
    await warmUp(world, requests)
    const [held, files] = [await holdingsOf(world), await filesOf(world)]
    await checked('chaos', mayhem, async () => chaos(t, world, requests, mayhem))
    await checked('settles', mayhem, async () => settle(world, requests))
    await checked('slots', mayhem, async () => assertSlotsFree(world, requests))
    await checked('answers', mayhem, () => assertTruthful(requests))
    await checked('journal', mayhem, async () => assertJournalled(world, requests.asked))
    await checked('journals are whole', mayhem, async () => assertJournalsWhole(world))
    await checked('processes', mayhem, async () => assertNobodyLeft(world))
    t.diagnostic(await checked('holdings', mayhem, async () => assertHoldings(world, requests, held)))
    await checked('files', mayhem, async () => assertNothingLeft(world, files))
    await checked('enough', mayhem, () => assertEnough(requests, mayhem))
    await checked('stop', mayhem, async () => assertStopped(world))
  },
)
