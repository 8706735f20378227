import { BoundedMap } from '../base/bounded-collections.ts'
import type { Timer } from '../base/clock.ts'
import type { ToApprovalClientBody } from '../protocol/desk/messages.ts'
import { type LifecycleEvent, isOver, runOf } from '../protocol/events/lifecycle.ts'
import { FOLLOW_TELL_MS, MAX_KNOWN_RUNS, UI_GRACE_MS } from '../protocol/limits/approvals.ts'
import type { DeskServices } from './services.ts'

/** Messages that approval clients receive without a request. */
export type WatcherMessage = Extract<ToApprovalClientBody, { type: 'question' | 'settled' | 'flood' | 'event' }>

type WatchedEvent = Extract<WatcherMessage, { type: 'event' }>

export const isEvent = (message: object): message is WatchedEvent => 'type' in message && message.type === 'event'

/** Whether the message is output of a run, which only its followers receive, and which is sent again. */
export const isOutput = (message: object): message is WatchedEvent => isEvent(message) && message.event.type === 'exec.output'

export interface Watcher {
  emit(message: WatcherMessage): void
}

/** The approval clients that watch. */
export class Watchers {
  readonly #deps: Pick<DeskServices, 'clock'>
  readonly #init: { readonly onNone: () => void }
  readonly #all = new Set<Watcher>()
  /** Listeners receive run events and do not count as approvers. */
  readonly #listeners = new Set<Watcher>()
  #leaving: Timer | null = null

  /** `onNone` is called when the last client has been disconnected for `UI_GRACE_MS`. */
  constructor(deps: Pick<DeskServices, 'clock'>, init: { readonly onNone: () => void }) {
    this.#deps = deps
    this.#init = init
  }

  /** Number of connected approval clients. */
  get count(): number {
    return this.#all.size
  }

  /** Whether a client is connected, or was within `UI_GRACE_MS`. */
  get any(): boolean {
    return this.#all.size > 0 || this.#leaving !== null
  }

  /** Returns a function that removes the watcher. */
  add(watcher: Watcher): () => void {
    this.#all.add(watcher)
    this.#leaving?.cancel()
    this.#leaving = null
    return () => this.#remove(watcher)
  }

  /** As `add`, for a listener of run events. */
  listen(listener: Watcher): () => void {
    this.#listeners.add(listener)
    return () => void this.#listeners.delete(listener)
  }

  emit(message: WatcherMessage): void {
    for (const watcher of this.#all) watcher.emit(message)
    if (isEvent(message)) for (const listener of this.#listeners) listener.emit(message)
  }

  #remove(watcher: Watcher): void {
    if (!this.#all.delete(watcher) || this.#all.size > 0) return
    this.#leaving = this.#deps.clock.setTimeout(
      () => {
        this.#leaving = null
        this.#init.onNone()
      },
      UI_GRACE_MS,
      { unref: true },
    )
  }
}

/** Tells an engine which of its runs are followed. */
type SendToWatcher = (runs: readonly string[]) => void

export class EngineRuns {
  readonly #runs = new BoundedMap<string, LifecycleEvent>({ max: MAX_KNOWN_RUNS })
  readonly #init: { readonly tell: SendToWatcher; readonly onNew: () => void }
  #lastSent = '[]'
  /** A new follower has to receive the output so far. */
  #isDue = false

  constructor(init: { readonly tell: SendToWatcher; readonly onNew: () => void }) {
    this.#init = init
  }

  get all(): readonly LifecycleEvent[] {
    return [...this.#runs.values()]
  }

  onEvent(event: LifecycleEvent): void {
    const run = runOf(event)
    if (isOver(event)) this.#runs.delete(run)
    else if (event.type === 'exec.started') {
      this.#runs.set(run, event)
      this.#init.onNew()
    }
  }

  onFollowed(run: string): void {
    this.#isDue ||= this.#runs.has(run)
  }

  /** `runs` are all followed runs, of any engine. */
  follow(runs: ReadonlySet<string>): void {
    const own = [...this.#runs.keys()].filter((run) => runs.has(run))
    const next = JSON.stringify(own)
    if (this.#isDue ? own.length > 0 : next !== this.#lastSent) this.#init.tell(own)
    this.#lastSent = next
    this.#isDue = false
  }
}

/** The running runs of all engines, and which of them approval clients follow. An engine reports output only of followed runs. */
export class OutputSubscriptions {
  readonly #deps: Pick<DeskServices, 'clock'>
  readonly #engines = new Set<EngineRuns>()
  readonly #clients = new Map<object, ReadonlySet<string>>()
  /** An update to the engines is scheduled. */
  #isDue = false

  constructor(deps: Pick<DeskServices, 'clock'>) {
    this.#deps = deps
  }

  /** Runs that have not ended, as engines reported them. */
  get running(): readonly LifecycleEvent[] {
    return [...this.#engines].flatMap((engine) => engine.all)
  }

  engine(tell: SendToWatcher): EngineRuns {
    const engine = new EngineRuns({ tell, onNew: () => this.#clients.size > 0 && this.#tellSoon() })
    this.#engines.add(engine)
    return engine
  }

  disconnected(engine: EngineRuns): void {
    this.#engines.delete(engine)
  }

  follow(client: object, runs: readonly string[]): void {
    const before = this.#clients.get(client)
    if (runs.length === 0) this.#clients.delete(client)
    else this.#clients.set(client, new Set(runs))
    for (const run of runs) if (before?.has(run) !== true) for (const engine of this.#engines) engine.onFollowed(run)
    if (before !== undefined || runs.length > 0) this.#tellSoon()
  }

  isFollowed(client: object, event: LifecycleEvent): boolean {
    return this.#clients.get(client)?.has(runOf(event)) === true
  }

  #tellSoon(): void {
    if (this.#isDue) return
    this.#isDue = true
    this.#deps.clock.setTimeout(() => this.#emit(), FOLLOW_TELL_MS, { unref: true })
  }

  #emit(): void {
    this.#isDue = false
    const all = new Set([...this.#clients.values()].flatMap((runs) => [...runs]))
    for (const engine of this.#engines) engine.follow(all)
  }
}
