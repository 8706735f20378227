import assert from 'node:assert/strict'
import { test, type TestContext } from 'node:test'

import { longOrShort } from '../test/support/campaign.ts'
import { Dice } from './chaos/dice.ts'
import { answerOf, assertCopied, assertLogged, assertLogsWhole, assertNoRoom, stateOf, type CopyAnswer } from './copy-chaos/aftermath.ts'
import { planOf, type PlannedRound } from './copy-chaos/plan.ts'
import { CopyWorld, type Copy } from './copy-chaos/world.ts'

// Copies files in both directions with the built command line, while connections are cut, clients and daemons are killed, and the disk is
// full. COPY_CHAOS_SEED selects another plan, and COPY_CHAOS_COPIES sets the number of copies.

const SEED = Number(process.env['COPY_CHAOS_SEED'] ?? 20_261)
const COPIES = Number(process.env['COPY_CHAOS_COPIES'] ?? longOrShort(200, 20))
const AT_ONCE = longOrShort(4, 2)

/** Runs rounds of copies and keeps the result of every command. */
class Campaign {
  readonly answers: CopyAnswer[] = []
  readonly #world: CopyWorld
  readonly #unfinished = new Set<Copy>()

  constructor(world: CopyWorld) {
    this.#world = world
  }

  async round(round: PlannedRound): Promise<void> {
    const world = this.#world
    const isFull = round.fault === 'full disk'
    const copies: Copy[] = []
    for (const planned of round.copies) copies.push(await world.prepare(planned, isFull))
    if (isFull) await world.fillDisk()
    const answers = await this.#troubled(round, copies)
    if (isFull) await world.emptyDisk()
    await world.settle()
    for (const answer of answers) {
      await assertCopied(answer)
      if (isFull) await assertNoRoom(answer)
      if (!answer.ok) this.#unfinished.add(answer.copy)
    }
    if (isFull)
      assert.ok(
        answers.some(({ ok, copy }) => !ok || (copy.direction === 'down' && !world.hasDisk)),
        'the disk was not full',
      )
    if (round.repeats) await this.finish(copies)
  }

  /** Repeats failed copies without a fault. */
  async finish(copies: Iterable<Copy> = this.#unfinished): Promise<void> {
    for (const copy of copies) {
      if (!this.#unfinished.delete(copy)) continue
      const answer = answerOf(copy, await this.#world.start(copy).finished)
      this.answers.push(answer)
      assert.equal(answer.status, 0, `${copy.name}, run again: ${answer.stderr}`)
      await assertCopied(answer)
    }
  }

  async #troubled(round: PlannedRound, copies: readonly Copy[]): Promise<CopyAnswer[]> {
    const world = this.#world
    const log = await world.requestsBytes()
    const running = copies.map((copy) => world.start(copy))
    let isOver = false
    const all = Promise.all(running.map(async ({ finished }, i) => answerOf(copies[i]!, await finished)))
    const over = all.finally(() => (isOver = true))
    const trouble = async (): Promise<void> => {
      await world.reached(round, copies[0]!, { log, isOver: () => isOver })
      if (round.fault === 'kill client') running[0]!.child.kill('SIGKILL')
      else await world.strike(round, () => isOver)
    }
    const [answers] = await Promise.all([over, trouble()])
    this.answers.push(...answers)
    return answers
  }
}

const chaos = async (t: TestContext): Promise<void> => {
  const world = await CopyWorld.create(t, SEED)
  const campaign = new Campaign(world)
  for (const round of planOf(new Dice(SEED), COPIES, AT_ONCE)) {
    const began = performance.now()
    const before = campaign.answers.length
    const told = (): string => {
      const ends = campaign.answers.slice(before).map(({ copy, status }) => `${copy.name} ${copy.direction} ${copy.size} → ${status}`)
      return `${round.fault} at ${round.at.toFixed(2)}: ${ends.join(', ')} (${Math.round(performance.now() - began)} ms)`
    }
    try {
      await campaign.round(round)
    } catch (error) {
      throw new Error(`${told()}: ${error instanceof Error ? error.message : String(error)}`, { cause: error })
    }
    t.diagnostic(told())
  }
  await campaign.finish()
  for (const { copy } of campaign.answers) assert.equal(await stateOf(copy), 'whole', copy.name)
  await assertLogged(world, campaign.answers)
  await assertLogsWhole(world)
  const failed = campaign.answers.filter(({ ok }) => !ok).length
  t.diagnostic(`${campaign.answers.length} commands for ${COPIES} copies, of which ${failed} did not report a copy`)
  assert.ok(failed > 0, 'no fault had an effect')
}

test(
  'each file is the old one or the whole new one, as reported, while connections, processes and the disk fail',
  { timeout: 480_000 },
  async (t) => {
    t.diagnostic(`COPY_CHAOS_SEED=${SEED} COPY_CHAOS_COPIES=${COPIES}`)
    try {
      await chaos(t)
    } catch (error) {
      throw new Error(`COPY_CHAOS_SEED=${SEED}: ${error instanceof Error ? error.message : String(error)}`, { cause: error })
    }
  },
)
