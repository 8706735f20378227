import type { ServerResponse } from 'node:http'
import { BoundedMap } from '../../base/bounded-collections.ts'
import type { Clock, Timer } from '../../base/clock.ts'
import { AppError, errorText } from '../../base/errors.ts'
import type { Flood, PendingApprovalRequest } from '../../protocol/desk/messages.ts'
import { type LifecycleEvent, runOf } from '../../protocol/events/lifecycle.ts'
import { MAX_ASKERS, MAX_FOLLOWED_RUNS } from '../../protocol/limits/approvals.ts'
import {
  MAX_PAGE_BEHIND,
  MAX_PAGE_EVENTS,
  MAX_PAGE_EVENTS_BEHIND,
  MAX_PAGE_EVENTS_JSON,
  PAGE_BEAT_MS,
  PAGE_FOLLOW_MS,
} from '../../protocol/limits/page.ts'
import { jsonText } from '../../protocol/lines.ts'
import type { PageDecision, PageEvent } from '../../protocol/page.ts'
import type { DeskWatch, PageDesk } from './components.ts'

/** How long until a desk that is gone is looked for again. */
const AGAIN_MS = 1_000

type Listener = (news: PageEvent) => void

/** Follows the desk for as long as a page is open, and not a moment longer: a desk that is followed waits for a person. */
export class DeskFeed {
  readonly #desk: PageDesk
  readonly #clock: Clock
  readonly #listeners = new Set<Listener>()
  readonly #questions = new Map<string, PendingApprovalRequest>()
  readonly #floods = new BoundedMap<string, Flood>({ max: MAX_ASKERS })
  #events: { readonly event: LifecycleEvent; readonly size: number }[] = []
  #watch: DeskWatch | null = null
  #problem: string | null = null
  #trying: AbortController | null = null
  #again: Timer | null = null
  /** Runs that pages show, and until when they are followed; the latest last. */
  readonly #followed = new BoundedMap<string, number>({ max: MAX_FOLLOWED_RUNS })
  #unfollow: Timer | null = null
  #asking: Promise<readonly LifecycleEvent[]> | null = null

  constructor(components: { readonly desk: PageDesk; readonly clock: Clock }) {
    this.#desk = components.desk
    this.#clock = components.clock
  }

  /** Tells what is, then what happens, until the answer is called. */
  follow(listener: Listener): () => void {
    this.#listeners.add(listener)
    listener(this.#state())
    for (const question of this.#questions.values()) listener({ type: 'question', question })
    for (const flood of this.#floods.values()) listener({ type: 'flood', flood })
    for (const { event } of this.#events) listener({ type: 'event', event })
    if (this.#trying === null) void this.#open()
    return () => {
      this.#listeners.delete(listener)
      if (this.#listeners.size === 0) this.#close()
    }
  }

  /** Throws `conflict` for what was shown otherwise, and what the desk refuses. */
  async decide(decision: PageDecision): Promise<object> {
    const watch = this.#watch
    if (watch === null) throw new AppError('daemon_unreachable', this.#problem ?? 'the desk is not there')
    return watch.decide(decision)
  }

  /** A page shows these runs: what they write is told for as long as it asks again. Answers those that go on; the desk may be gone. */
  async followRuns(runs: readonly string[]): Promise<readonly string[]> {
    const until = this.#clock.monotonic() + PAGE_FOLLOW_MS
    for (const run of runs) this.#followed.set(run, until)
    const going = await this.#follow().catch(() => [])
    for (const event of going) if (!this.#events.some((kept) => runOf(kept.event) === runOf(event))) this.#hear({ type: 'event', event })
    return going.map(runOf)
  }

  /** Asks the desk for what is followed now, and again when some of it is not any more. */
  async #follow(): Promise<readonly LifecycleEvent[]> {
    const now = this.#clock.monotonic()
    for (const [run, until] of this.#followed) if (until <= now) this.#followed.delete(run)
    this.#unfollow?.cancel()
    const lapses = () => void this.#follow().catch(() => undefined)
    this.#unfollow = this.#followed.size === 0 ? null : this.#clock.setTimeout(lapses, PAGE_FOLLOW_MS, { unref: true })
    // However often pages ask, the desk is asked once at a time: it hangs up on who asks too much.
    this.#asking ??= this.#watch?.follow([...this.#followed.keys()]).finally(() => (this.#asking = null)) ?? null
    return (await this.#asking) ?? []
  }

  #hear(news: PageEvent): void {
    if (news.type === 'question') this.#questions.set(news.question.question_id, news.question)
    else if (news.type === 'settled') this.#questions.delete(news.question_id)
    else if (news.type === 'flood') this.#floods.set(news.flood.asker, news.flood)
    else if (news.type === 'event') this.#keep(news.event)
    this.#emit(news)
  }

  #state(): PageEvent {
    return { type: 'desk', open: this.#watch !== null, problem: this.#problem }
  }

  #emit(news: PageEvent): void {
    for (const listener of this.#listeners) listener(news)
  }

  async #open(): Promise<void> {
    const trying = new AbortController()
    this.#trying = trying
    let problem: string
    try {
      const watch = await this.#desk.watch((news) => {
        if (!trying.signal.aborted) this.#hear(news)
      })
      if (trying.signal.aborted) return watch.close()
      this.#watch = watch
      this.#problem = null
      this.#emit(this.#state())
      problem = await watch.ended
    } catch (error) {
      problem = errorText(error)
    }
    if (trying.signal.aborted) return
    this.#forget()
    this.#problem = problem
    this.#emit(this.#state())
    this.#again = this.#clock.setTimeout(() => void this.#open(), AGAIN_MS, { unref: true })
  }

  /** The newest, as many as a page that comes can be told at once. */
  #keep(event: LifecycleEvent): void {
    this.#events = this.#events.filter((kept) => kept.event.type !== 'exec.output' || runOf(kept.event) !== runOf(event))
    this.#events.push({ event, size: JSON.stringify(event).length })
    let size = this.#events.reduce((sum, one) => sum + one.size, 0)
    while (this.#events.length > MAX_PAGE_EVENTS || size > MAX_PAGE_EVENTS_JSON) size -= this.#events.shift()?.size ?? size
  }

  /** What a desk that is gone has asked is answered by nobody. */
  #forget(): void {
    this.#watch = null
    this.#questions.clear()
    this.#floods.clear()
  }

  #close(): void {
    this.#again?.cancel()
    this.#unfollow?.cancel()
    this.#followed.clear()
    this.#trying?.abort()
    this.#trying = null
    this.#watch?.close()
    this.#forget()
    this.#events = []
  }
}

/** Streams what the desk tells to one page, until it goes or its session is over. */
export const streamEvents = (
  response: ServerResponse,
  { feed, clock, signal }: { feed: DeskFeed; clock: Clock; signal: AbortSignal },
): void => {
  let beat: Timer | null = null
  let unfollow = (): void => undefined
  const write = (news: PageEvent): void => {
    if (response.destroyed) return
    // Output is told again, and the journal has how runs ended: a page that reads slowly loses no question for them.
    const unread = response.writableLength
    if (news.type === 'event' && (news.event.type === 'exec.output' ? response.writableNeedDrain : unread > MAX_PAGE_EVENTS_BEHIND)) return
    response.write(`${jsonText(news)}\n`)
    // Who does not read holds no memory of ours: it comes again, and is told what is then.
    if (response.writableLength > MAX_PAGE_BEHIND) response.destroy()
  }
  const beatOn = (): void => {
    beat = clock.setTimeout(
      () => {
        write({ type: 'beat' })
        beatOn()
      },
      PAGE_BEAT_MS,
      { unref: true },
    )
  }
  const end = (): void => void response.end()
  response.on('error', () => undefined)
  response.once('close', () => {
    beat?.cancel()
    signal.removeEventListener('abort', end)
    unfollow()
  })
  response.writeHead(200, { 'content-type': 'application/x-ndjson' })
  response.flushHeaders()
  signal.addEventListener('abort', end, { once: true })
  beatOn()
  unfollow = feed.follow(write)
}
