import assert from 'node:assert/strict'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, it, test } from 'node:test'

import fc from 'fast-check'

import { systemClock } from '../../../src/base/clock.ts'
import { Semaphore } from '../../../src/base/semaphore.ts'
import { Fanout, type FanoutPlan, type HostRun } from '../../../src/exec/fleet/fanout.ts'
import type { FanoutHost } from '../../../src/exec/fleet/host-end.ts'
import {
  isSuccess,
  ledgerProblem,
  NO_FACTS,
  sumsOf,
  type FanoutEnd,
  type FanoutHostJson,
  type FanoutLedgerJson,
} from '../../../src/protocol/api/fanout.ts'
import { ManualClock } from '../../support/manual-clock.ts'

const ID = '01890a5d-ac96-774b-bcce-b302099a8057'
const hostsOf = (count: number): FanoutHost[] =>
  Array.from({ length: count }, (_, index) => ({ host: `h${index}`, agent_id: String(index).padStart(64, '0') }))

/** The way in which a host ends, and whether a cancel reaches it. */
interface Script {
  readonly end: Exclude<FanoutEnd, 'not_started'>
  readonly code: number
  readonly turns: number
  readonly heedsCancel: boolean
}

const WELL: Script = { end: 'ran', code: 0, turns: 1, heedsCancel: true }

const endOf = (host: FanoutHost, { end, code }: Pick<Script, 'end' | 'code'>): FanoutHostJson => ({
  ...NO_FACTS,
  ...host,
  request_id: ID,
  end,
  code: end === 'ran' ? code : null,
})

/** Hosts that follow their scripts, and a record of their runs. */
class Scripted {
  readonly began: string[] = []
  readonly told: FanoutHostJson[] = []
  running = 0
  most = 0
  cancelled = 0
  /** Delays the fan-out in its report of a host. */
  hold: (host: FanoutHostJson) => Promise<void> = async () => undefined
  readonly #scripts: (host: number) => Script

  constructor(scripts: (host: number) => Script) {
    this.#scripts = scripts
  }

  begin(host: FanoutHost): HostRun {
    const script = this.#scripts(Number(host.host.slice(1)))
    this.began.push(host.host)
    this.running += 1
    this.most = Math.max(this.most, this.running)
    const run = { cancelled: false }
    const ended = async (): Promise<FanoutHostJson> => {
      for (let turn = 0; turn < script.turns && !(run.cancelled && script.heedsCancel); turn++) await nextTurn()
      this.running -= 1
      return endOf(host, run.cancelled && script.heedsCancel ? { end: 'cancelled', code: 0 } : script)
    }
    const cancel = (): void => {
      run.cancelled = true
      this.cancelled += 1
    }
    return { ended: ended(), cancel }
  }

  fanout(count: number, plan: Partial<FanoutPlan> = {}, clock = systemClock as ConstructorParameters<typeof Fanout>[0]['clock']): Fanout {
    return new Fanout(
      {
        clock,
        slots: new Semaphore({ limit: 1_024 }),
        start: (host) => this.begin(host),
        ended: async (host) => {
          this.told.push(host)
          await this.hold(host)
        },
      },
      { fanout_id: ID, hosts: hostsOf(count), parallel: 4, canary: 0, maxFailures: null, deadlineMs: null, ...plan },
    )
  }

  get notStarted(): FanoutHostJson[] {
    return this.told.filter(({ end }) => end === 'not_started')
  }
}

const addsUp = (ledger: FanoutLedgerJson, scripted: Scripted, count: number): void => {
  assert.equal(ledgerProblem(ledger), null)
  assert.equal(ledger.asked, count)
  assert.deepEqual(ledger, sumsOf(ID, scripted.told))
  assert.deepEqual(
    scripted.told.map(({ host }) => host).toSorted(),
    hostsOf(count)
      .map(({ host }) => host)
      .toSorted(),
  )
  assert.equal(scripted.notStarted.length, count - scripted.began.length)
}

const script = fc.record<Script>({
  end: fc.constantFrom('ran', 'ran', 'ran', 'denied', 'unreachable', 'cancelled', 'unknown'),
  code: fc.constantFrom(0, 0, 0, 1),
  turns: fc.nat({ max: 4 }),
  heedsCancel: fc.boolean(),
})

test('each host of a fan-out ends once, starts in order, and never exceeds the window', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.array(script, { minLength: 1, maxLength: 30 }),
      fc.integer({ min: 1, max: 8 }),
      fc.nat({ max: 6 }),
      fc.option(fc.integer({ min: 1, max: 6 })),
      fc.option(fc.nat({ max: 12 })),
      fc.array(fc.nat({ max: 3 }), { minLength: 1, maxLength: 5 }),
      async (scripts, parallel, canary, maxFailures, stopAfter, holds) => {
        const scripted = new Scripted((host) => scripts[host]!)
        let told = 0
        scripted.hold = async () => {
          for (let turns = holds[told++ % holds.length]!; turns > 0; turns--) await nextTurn()
        }
        const fanout = scripted.fanout(scripts.length, { parallel, canary, maxFailures })
        const ended = fanout.run()
        if (stopAfter !== null) {
          for (let turn = 0; turn < stopAfter; turn++) await nextTurn()
          fanout.stop('caller_left')
        }
        addsUp(await ended, scripted, scripts.length)
        assert.ok(scripted.most <= parallel, `${scripted.most} at once`)
        assert.deepEqual(
          scripted.began,
          hostsOf(scripted.began.length).map(({ host }) => host),
        )
        const canaries = scripted.told.filter(({ host }) => Number(host.slice(1)) < canary)
        if (scripted.began.length > canary) assert.ok(canaries.every(isSuccess), 'a canary failed and others began')
        const failed = scripted.told.filter((host) => host.end !== 'not_started' && !isSuccess(host)).length
        if (maxFailures !== null) assert.ok(failed < maxFailures + parallel, `${failed} failed`)
        assert.deepEqual(fanout.progress, { begun: scripted.began.length, ended: scripts.length })
      },
    ),
    { numRuns: 300 },
  )
})

describe('canary hosts', () => {
  it('all end well before the other hosts start', async () => {
    const scripted = new Scripted(() => WELL)
    const seen: number[] = []
    scripted.hold = async () => void seen.push(scripted.began.length)
    const ledger = await scripted.fanout(10, { canary: 3 }).run()
    assert.deepEqual([ledger.ok, ledger.ran, seen.slice(0, 3)], [true, 10, [3, 3, 3]])
  })

  it('that fail prevent the start of the others, including later canary hosts', async () => {
    const scripted = new Scripted((host) => ({ ...WELL, end: host === 0 ? 'denied' : 'ran' }))
    const ledger = await scripted.fanout(10, { canary: 3, parallel: 1 }).run()
    assert.deepEqual([ledger.denied, ledger.not_started, ledger.ok], [1, 9, false])
    assert.ok(scripted.notStarted.every(({ error, request_id }) => error === 'canary_failed' && request_id === null))
  })

  it('are all hosts if their number exceeds that of the hosts', async () => {
    const scripted = new Scripted((host) => ({ ...WELL, code: host === 2 ? 1 : 0 }))
    const ledger = await scripted.fanout(3, { canary: 100 }).run()
    assert.deepEqual([ledger.ran, ledger.failed, ledger.not_started], [3, 1, 0])
  })
})

describe('a failure limit', () => {
  it('starts all hosts below it, and no more hosts at it', async () => {
    for (const [failing, begun] of [
      [2, 10],
      [3, 3],
    ] as const) {
      const scripted = new Scripted((host) => ({ ...WELL, end: host < failing ? 'unreachable' : 'ran' }))
      const ledger = await scripted.fanout(10, { parallel: 1, maxFailures: 3 }).run()
      assert.deepEqual([scripted.began.length, ledger.unreachable, ledger.not_started], [begun, failing, 10 - begun])
      assert.ok(scripted.notStarted.every(({ error }) => error === 'max_failures_reached'))
      assert.equal(scripted.cancelled, 0)
    }
  })

  it('lets active runs continue to their end', async () => {
    const scripted = new Scripted((host) => (host === 0 ? { ...WELL, code: 1 } : { ...WELL, turns: 5 }))
    const ledger = await scripted.fanout(10, { parallel: 4, maxFailures: 1 }).run()
    assert.deepEqual([ledger.ran, ledger.failed, ledger.not_started, scripted.cancelled], [4, 1, 6, 0])
  })
})

describe('a deadline', () => {
  it('cancels active runs, starts no more, and leaves no timer', async () => {
    const clock = new ManualClock()
    const scripted = new Scripted(() => ({ ...WELL, turns: Number.POSITIVE_INFINITY }))
    const ended = scripted.fanout(10, { parallel: 4, deadlineMs: 1_000 }, clock).run()
    await clock.advance(999)
    assert.deepEqual([scripted.began.length, scripted.cancelled], [4, 0])
    await clock.advance(1)
    const ledger = await ended
    assert.deepEqual([ledger.cancelled, ledger.not_started, clock.pending], [4, 6, 0])
    assert.ok(scripted.notStarted.every(({ error }) => error === 'deadline_over'))
    const cancelled = scripted.told.filter(({ end }) => end === 'cancelled')
    assert.ok(cancelled.every(({ message }) => message === 'it was stopped: --deadline was reached'))
  })

  it('after a failure limit cancels runs with the deadline as the reason', async () => {
    const clock = new ManualClock()
    const scripted = new Scripted((host) => (host === 0 ? { ...WELL, code: 1 } : { ...WELL, turns: Number.POSITIVE_INFINITY }))
    const ended = scripted.fanout(5, { parallel: 2, maxFailures: 1, deadlineMs: 1_000 }, clock).run()
    while (scripted.told.length === 0) await nextTurn()
    await clock.advance(1_000)
    assert.deepEqual([(await ended).cancelled, scripted.notStarted[0]?.error], [1, 'max_failures_reached'])
    assert.match(scripted.told.find(({ end }) => end === 'cancelled')?.message ?? '', /: --deadline was reached$/)
  })

  it('that is not reached leaves no timer', async () => {
    const clock = new ManualClock()
    const ledger = await new Scripted(() => WELL).fanout(3, { deadlineMs: 1_000 }, clock).run()
    assert.deepEqual([ledger.ok, clock.pending], [true, 0])
  })
})

describe('slots', () => {
  it('of a slow reader stay taken until it has read, so that no more hosts start', async () => {
    const scripted = new Scripted(() => WELL)
    const { promise, resolve } = Promise.withResolvers<void>()
    scripted.hold = () => promise
    const ended = scripted.fanout(100, { parallel: 4 }).run()
    for (let turn = 0; turn < 50; turn++) await nextTurn()
    assert.deepEqual([scripted.began.length, scripted.told.length], [4, 4])
    resolve()
    assert.equal((await ended).ran, 100)
  })

  it('are shared by all fan-outs, so that two alternate', async () => {
    const slots = new Semaphore({ limit: 2 })
    const began: string[] = []
    const fanout = (name: string): Fanout =>
      new Fanout(
        {
          clock: systemClock,
          slots,
          start: (host) => {
            began.push(name)
            return { ended: nextTurn(endOf(host, WELL)), cancel: () => undefined }
          },
          ended: () => undefined,
        },
        { fanout_id: ID, hosts: hostsOf(50), parallel: 50, canary: 0, maxFailures: null, deadlineMs: null },
      )
    await Promise.all([fanout('a').run(), fanout('b').run()])
    assert.equal(began.length, 100)
    // Both started hosts before the other had ended.
    assert.ok(began.slice(0, 50).includes('b') && began.slice(50).includes('a'))
  })

  it('are returned by a fan-out that was stopped while it waited for one', async () => {
    const slots = new Semaphore({ limit: 1 })
    const leave = await slots.acquire(new AbortController().signal)
    const scripted = new Scripted(() => WELL)
    const fanout = new Fanout(
      { clock: systemClock, slots, start: (host) => scripted.begin(host), ended: (host) => void scripted.told.push(host) },
      { fanout_id: ID, hosts: hostsOf(3), parallel: 2, canary: 0, maxFailures: null, deadlineMs: null },
    )
    const ended = fanout.run()
    await nextTurn()
    fanout.stop('fanout_cancelled')
    addsUp(await ended, scripted, 3)
    assert.deepEqual(scripted.began, [])
    leave()
    assert.ok(slots.free)
  })
})

test('a fan-out to 10,000 hosts completes quickly', async () => {
  const scripted = new Scripted(() => ({ ...WELL, turns: 0 }))
  const ledger = await scripted.fanout(10_000, { parallel: 1_024 }).run()
  addsUp(ledger, scripted, 10_000)
  assert.equal(ledger.ok, true)
})
