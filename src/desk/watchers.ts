import type { Clock, Timer } from '../base/clock.ts'
import { UI_GRACE_MS } from '../protocol/desk-limits.ts'
import type { ToHumanBody } from '../protocol/desk.ts'

/** What a watching human is told without having asked. */
export type News = Extract<ToHumanBody, { type: 'question' | 'settled' | 'flood' | 'event' }>

type EventNews = Extract<News, { type: 'event' }>

/** What becomes of a run. */
export const isEvent = (news: object): news is EventNews => 'type' in news && news.type === 'event'

/** What a run has written so far: only whoever follows it is told, and it is told again. */
export const isOutput = (news: object): news is EventNews => isEvent(news) && news.event.type === 'exec.output'

export interface Watcher {
  tell(news: News): void
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

  tell(news: News): void {
    for (const watcher of this.#all) watcher.tell(news)
    if (isEvent(news)) for (const listener of this.#listeners) listener.tell(news)
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
