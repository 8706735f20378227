import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock, Timer } from '../base/clock.ts'
import type { ToApprovalClientBody } from '../protocol/desk/messages.ts'
import { type LifecycleEvent, isOver, runOf } from '../protocol/events/lifecycle.ts'
import { FOLLOW_TELL_MS, MAX_KNOWN_RUNS, UI_GRACE_MS } from '../protocol/limits/approvals.ts'

/** What a watching human is told without having asked. */
export type WatcherMessage = Extract<ToApprovalClientBody, { type: 'question' | 'settled' | 'flood' | 'event' }>

type WatchedEvent = Extract<WatcherMessage, { type: 'event' }>

/** What becomes of a run. */
export const isEvent = (news: object): news is WatchedEvent => 'type' in news && news.type === 'event'

/** What a run has written so far: only whoever follows it is told, and it is told again. */
export const isOutput = (news: object): news is WatchedEvent => isEvent(news) && news.event.type === 'exec.output'

export interface Watcher {
  emit(news: WatcherMessage): void
}

/** The windows that humans watch. */
export class Watchers {
  readonly #clock: Clock
  readonly #onNone: () => void
  readonly #all = new Set<Watcher>()
  /** Hear of runs, and count as nobody. */
  readonly #listeners = new Set<Watcher>()
  #leaving: Timer | null = null

  /** `onNone`: called when the last has been gone for a moment, and none came back. */
  constructor(components: { clock: Clock }, init: { readonly onNone: () => void }) {
    this.#clock = components.clock
    this.#onNone = init.onNone
  }

  /** How many windows watch now. */
  get count(): number {
    return this.#all.size
  }

  /** Somebody watches, or did a moment ago. */
  get any(): boolean {
    return this.#all.size > 0 || this.#leaving !== null
  }

  /** Answers what takes it out again. */
  add(watcher: Watcher): () => void {
    this.#all.add(watcher)
    this.#leaving?.cancel()
    this.#leaving = null
    return () => this.#remove(watcher)
  }

  /** As `add`, for one that only hears of runs. */
  listen(listener: Watcher): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  emit(news: WatcherMessage): void {
    for (const watcher of this.#all) watcher.emit(news)
    if (isEvent(news)) for (const listener of this.#listeners) listener.emit(news)
  }

  #remove(watcher: Watcher): void {
    if (!this.#all.delete(watcher) || this.#all.size > 0) return
    this.#leaving = this.#clock.setTimeout(
      () => {
        this.#leaving = null
        this.#onNone()
      },
      UI_GRACE_MS,
      { unref: true },
    )
  }
}

/** An engine is told which of its runs are followed. */
type SendToWatcher = (runs: readonly string[]) => void

/** Runs of one engine that go on. */
export class EngineRuns {
  readonly #runs = new BoundedMap<string, LifecycleEvent>({ max: MAX_KNOWN_RUNS })
  readonly #emit: SendToWatcher
  readonly #onNew: () => void
  #told = '[]'
  /** Somebody looks at one of them who did not before. */
  #isDue = false

  constructor(init: { readonly tell: SendToWatcher; readonly onNew: () => void }) {
    this.#emit = init.tell
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
    if (this.#isDue ? own.length > 0 : said !== this.#told) this.#emit(own)
    this.#told = said
    this.#isDue = false
  }
}

/** Which runs go on at which engine, and which of them windows follow: an engine tells what a run writes only while somebody looks at it. */
export class OutputSubscriptions {
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

  engine(tell: SendToWatcher): EngineRuns {
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
    this.#clock.setTimeout(() => this.#emit(), FOLLOW_TELL_MS, { unref: true })
  }

  #emit(): void {
    this.#isDue = false
    const all = new Set([...this.#windows.values()].flatMap((runs) => [...runs]))
    for (const engine of this.#engines) engine.follow(all)
  }
}
