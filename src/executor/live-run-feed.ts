import type { Clock, Timer } from '../base/clock.ts'
import type { DeskLink, LiveRunSource } from '../desk/desk-link.ts'
import { type LifecycleEvent, type LifecycleFacts, isOver, lifecycleEvent, runOf } from '../protocol/events/lifecycle.ts'
import { RunReporter } from '../protocol/events/run-reporter.ts'
import { LIVE_AGAIN_MS, LIVE_OUTPUT_MS, MAX_LIVE_AT_ONCE } from '../protocol/limits/events.ts'

/** Sends run events to the approval clients of this machine and, for followed runs, output at intervals. It never holds up a run. */
export class LiveRunFeed implements LiveRunSource {
  readonly #deps: { readonly clock: Clock; readonly desk: Pick<DeskLink, 'event' | 'serve'> }
  /** Active runs by `runOf`. */
  readonly #reporters = new Map<string, RunReporter>()
  /** Called when somebody begins to follow the run, by `runOf`. */
  readonly #onFollowed = new Map<string, () => void>()
  /** Followed runs and when output was last sent, longest ago first. */
  #followed = new Map<string, number>()
  /** Number of the last event. */
  #n = 0
  #timer: Timer | null = null

  constructor(deps: { readonly clock: Clock; readonly desk: Pick<DeskLink, 'event' | 'serve'> }) {
    this.#deps = deps
    deps.desk.serve(this)
  }

  emit(facts: LifecycleFacts): void {
    this.#n += 1
    if (isOver(facts)) {
      this.#reporters.delete(runOf(facts))
      this.#onFollowed.delete(runOf(facts))
    }
    this.#deps.desk.event(this.#event(facts))
  }

  /** Returns a reporter for a run that has no other listener. `onFollowed` is called each time that somebody begins to follow it. */
  reporter(about: ConstructorParameters<typeof RunReporter>[1], onFollowed: (() => void) | null = null): RunReporter {
    const reporter = new RunReporter({ tell: (facts) => this.emit(facts) }, about)
    this.add(reporter)
    if (onFollowed !== null) this.#onFollowed.set(reporter.run, onFollowed)
    return reporter
  }

  /** Adds a run whose events another listener also receives. */
  add(reporter: RunReporter): void {
    this.#reporters.set(reporter.run, reporter)
  }

  get running(): readonly LifecycleEvent[] {
    return [...this.#reporters.values()].flatMap(({ running }) => (running === null ? [] : [this.#event(running)]))
  }

  follow(runs: readonly string[]): void {
    for (const run of runs) if (!this.#followed.has(run)) this.#onFollowed.get(run)?.()
    this.#followed = new Map(runs.map((run) => [run, -LIVE_AGAIN_MS]))
    this.#timer?.cancel()
    this.#poll()
  }

  #event(facts: LifecycleFacts): LifecycleEvent {
    return lifecycleEvent(facts, { n: this.#n, ts: new Date(this.#deps.clock.now()).toISOString() })
  }

  #poll(): void {
    let room = MAX_LIVE_AT_ONCE
    const now = this.#deps.clock.monotonic()
    const followed = [...this.#followed].filter(([run]) => this.#reporters.has(run))
    for (const [run, sentAt] of followed) {
      const facts = room > 0 ? (this.#reporters.get(run)?.soFar(now - sentAt >= LIVE_AGAIN_MS) ?? null) : null
      if (facts === null) continue
      room -= 1
      this.#followed.delete(run)
      this.#followed.set(run, now)
      this.emit(facts)
    }
    this.#timer = followed.length === 0 ? null : this.#deps.clock.setTimeout(() => this.#poll(), LIVE_OUTPUT_MS, { unref: true })
  }
}
