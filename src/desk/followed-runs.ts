import { BoundedMap } from '../base/bounded.ts'
import type { Clock } from '../base/clock.ts'
import { FOLLOW_TELL_MS, MAX_KNOWN_RUNS } from '../protocol/desk-limits.ts'
import { type LifecycleEvent, isOver, runOf } from '../protocol/lifecycle.ts'

/** An engine is told which of its runs are followed. */
type Tell = (runs: readonly string[]) => void

/** Runs of one engine that go on. */
export class EngineRuns {
  readonly #runs = new BoundedMap<string, LifecycleEvent>({ max: MAX_KNOWN_RUNS })
  readonly #tell: Tell
  readonly #onNew: () => void
  #told = '[]'
  /** Somebody looks at one of them who did not before. */
  #isDue = false

  constructor(init: { readonly tell: Tell; readonly onNew: () => void }) {
    this.#tell = init.tell
    this.#onNew = init.onNew
  }

  get all(): readonly LifecycleEvent[] {
    return [...this.#runs.values()]
  }

  heard(event: LifecycleEvent): void {
    const run = runOf(event)
    if (isOver(event)) this.#runs.delete(run)
    else if (event.type === 'exec.started') {
      this.#runs.set(run, event)
      this.#onNew()
    }
  }

  lookedAt(run: string): void {
    this.#isDue ||= this.#runs.has(run)
  }

  /** Of all runs that are followed. */
  follow(runs: ReadonlySet<string>): void {
    const own = [...this.#runs.keys()].filter((run) => runs.has(run))
    const said = JSON.stringify(own)
    if (this.#isDue ? own.length > 0 : said !== this.#told) this.#tell(own)
    this.#told = said
    this.#isDue = false
  }
}

/** Which runs go on at which engine, and which of them windows follow: an engine tells what a run writes only while somebody looks at it. */
export class FollowedRuns {
  readonly #clock: Clock
  readonly #engines = new Set<EngineRuns>()
  readonly #windows = new Map<object, ReadonlySet<string>>()
  /** Engines are told in a moment. */
  #isDue = false

  constructor(components: { readonly clock: Clock }) {
    this.#clock = components.clock
  }

  /** The runs that go on, as engines told of them. */
  get running(): readonly LifecycleEvent[] {
    return [...this.#engines].flatMap((engine) => engine.all)
  }

  engine(tell: Tell): EngineRuns {
    const engine = new EngineRuns({ tell, onNew: () => this.#windows.size > 0 && this.#tellSoon() })
    this.#engines.add(engine)
    return engine
  }

  gone(engine: EngineRuns): void {
    this.#engines.delete(engine)
  }

  /** In place of what this window followed before. */
  follow(window: object, runs: readonly string[]): void {
    const before = this.#windows.get(window)
    if (runs.length === 0) this.#windows.delete(window)
    else this.#windows.set(window, new Set(runs))
    for (const run of runs) if (before?.has(run) !== true) for (const engine of this.#engines) engine.lookedAt(run)
    if (before !== undefined || runs.length > 0) this.#tellSoon()
  }

  isFollowed(window: object, event: LifecycleEvent): boolean {
    return this.#windows.get(window)?.has(runOf(event)) === true
  }

  #tellSoon(): void {
    if (this.#isDue) return
    this.#isDue = true
    this.#clock.setTimeout(() => this.#tell(), FOLLOW_TELL_MS, { unref: true })
  }

  #tell(): void {
    this.#isDue = false
    const all = new Set([...this.#windows.values()].flatMap((runs) => [...runs]))
    for (const engine of this.#engines) engine.follow(all)
  }
}
