import assert from 'node:assert/strict'
import { test } from 'node:test'

import fc from 'fast-check'

import { NEVER } from '../../../src/base/abort.ts'
import { RequesterCounters } from '../../../src/exec/counters.ts'
import { Fanouts, type FanoutSink, type FanoutSpec } from '../../../src/exec/fleet/fanouts.ts'
import { FanoutSlots } from '../../../src/exec/fleet/fanouts.ts'
import { newRequestId } from '../../../src/identity/request-id.ts'
import {
  DEFAULT_FANOUT_PARALLEL,
  FANOUT_LEAST_RUNS,
  MAX_FANOUT_PARALLEL,
  MAX_FANOUT_RUNS,
  MAX_FANOUTS,
} from '../../../src/protocol/limits/fleet.ts'
import type { FanoutLedgerJson } from '../../../src/protocol/api/fanout.ts'
import { runOutcome } from '../../support/journal-exit.ts'
import { ManualClock } from '../../support/manual-clock.ts'
import { settle } from '../../support/scripted-peer.ts'
import { fake } from '../../support/fake.ts'

/** More hosts than one fan-out may ask at once. */
const HOSTS = MAX_FANOUT_PARALLEL + 50

const specOf = (parallel: number): FanoutSpec => ({
  fanout_id: newRequestId(),
  hosts: Array.from({ length: HOSTS }, (_, at) => ({ host: `h${at}`, agent_id: at.toString(16).padStart(64, '0') })),
  parallel,
  canary: 0,
  maxFailures: null,
  deadlineMs: null,
  command: { argv: ['x'], timeout_ms: null, cwd: null, clamp: false, stdin: null, requestIds: new Map() },
  proof: null,
})

/** Fan-outs whose hosts end at once, after the reader of each has taken its last line. */
class Daemon {
  readonly fanouts = new Fanouts({
    clock: new ManualClock(),
    counters: new RequesterCounters(),
    executor: fake({ proveFanout: async () => assert.fail('nothing was proven'), fanoutOver: async () => undefined }),
    runner: { cancel: () => undefined, run: async ({ request_id, agent_id }) => runOutcome({ request_id: request_id!, agent_id }) },
  })

  /** The reader of the fan-out takes no line before `held` resolves. */
  async ask(parallel: number, held: Promise<void> | null = null): Promise<FanoutLedgerJson> {
    const sink: FanoutSink = {
      asked: () => undefined,
      begun: () => undefined,
      event: () => undefined,
      ended: async () => held ?? undefined,
      hurry: () => undefined,
    }
    return this.fanouts.run(specOf(parallel), sink, NEVER)
  }

  get begun(): number[] {
    return this.fanouts.sessions().map(({ begun }) => begun)
  }
}

test('a new fan-out gets slots and ends even if the readers of all others pause', { timeout: 60_000 }, async () => {
  const { promise: read, resolve: goOn } = Promise.withResolvers<void>()
  const daemon = new Daemon()
  const paused: Promise<FanoutLedgerJson>[] = []
  while (paused.length < MAX_FANOUTS - 1) {
    paused.push(daemon.ask(MAX_FANOUT_PARALLEL, read))
    await settle()
  }
  assert.equal((await daemon.ask(DEFAULT_FANOUT_PARALLEL)).ran, HOSTS)
  // Each fan-out got as many slots as it left for later ones.
  assert.deepEqual(daemon.begun.slice(0, 4), [512, 256, 128, 64])
  assert.ok(daemon.begun.every((begun) => begun >= FANOUT_LEAST_RUNS))
  goOn()
  for (const { ran } of await Promise.all(paused)) assert.equal(ran, HOSTS)
})

test('a single fan-out gets all slots that it asks for, and freed slots go to waiting fan-outs', async () => {
  for (const parallel of [1, DEFAULT_FANOUT_PARALLEL, MAX_FANOUT_PARALLEL]) {
    const { promise: read, resolve: goOn } = Promise.withResolvers<void>()
    const daemon = new Daemon()
    const ended = daemon.ask(parallel, read)
    await settle()
    assert.deepEqual(daemon.begun, [parallel])
    goOn()
    await ended
  }
  const [first, second] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()]
  const daemon = new Daemon()
  const one = daemon.ask(MAX_FANOUT_PARALLEL, first.promise)
  const other = daemon.ask(MAX_FANOUT_PARALLEL, second.promise)
  await settle()
  const [, before] = daemon.begun
  first.resolve()
  await one
  await settle()
  assert.ok(before! < MAX_FANOUT_PARALLEL)
  assert.deepEqual(daemon.begun, [MAX_FANOUT_PARALLEL])
  second.resolve()
  await other
})

test('fan-outs never take more slots than exist, and each gets its minimum at once', async () => {
  const step = fc.record({ who: fc.nat(MAX_FANOUTS - 1), places: fc.integer({ min: -600, max: 600 }) })
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 60, size: 'max' }), async (steps) => {
      const places = new FanoutSlots({ clock: new ManualClock() })
      const fanouts = Array.from({ length: MAX_FANOUTS }, () => ({ share: places.share(), held: [] as (() => void)[] }))
      /** Takes one more slot, or gives up. */
      const take = async ({ share, held }: (typeof fanouts)[number]): Promise<boolean> => {
        const patience = new AbortController()
        const entered = share.acquire(patience.signal).then((leave) => held.push(leave) > 0)
        await Promise.resolve()
        await Promise.resolve()
        patience.abort(new Error('enough'))
        return entered.catch(() => false)
      }
      for (const { who, places: wanted } of steps) {
        const one = fanouts[who]!
        if (wanted < 0) for (const leave of one.held.splice(0, -wanted)) leave()
        for (let taken = 0; taken < wanted && (await take(one)); taken++);
        assert.ok(fanouts.reduce((sum, { held }) => sum + held.length, 0) <= MAX_FANOUT_RUNS)
      }
      for (const one of fanouts) {
        while (one.held.length < FANOUT_LEAST_RUNS) assert.ok(await take(one), 'it had to wait')
      }
    }),
    { numRuns: 15 },
  )
})
