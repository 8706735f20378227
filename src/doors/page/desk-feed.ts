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
import type { DeskListener, DeskWatch, PageServices } from './services.ts'

/** How long to wait before reconnecting to the approval service. */
const RECONNECT_MS = 1_000

/** Subscribes to the approval service only while a page is open, because a subscribed approver makes requests wait for a decision. */
export class DeskFeed {
  readonly #deps: Pick<PageServices, 'clock' | 'desk'>
  readonly #listeners = new Set<DeskListener>()
  readonly #requests = new Map<string, PendingApprovalRequest>()
  readonly #floods = new BoundedMap<string, Flood>({ max: MAX_ASKERS })
  #events: { readonly event: LifecycleEvent; readonly size: number }[] = []
  #watch: DeskWatch | null = null
  #problem: string | null = null
  #attempt: AbortController | null = null
  #reconnect: Timer | null = null
  /** Runs that pages show, each with the time until which its output is followed. The latest is last. */
  readonly #followed = new BoundedMap<string, number>({ max: MAX_FOLLOWED_RUNS })
  #unfollow: Timer | null = null
  #pending: Promise<readonly LifecycleEvent[]> | null = null

  constructor(deps: Pick<PageServices, 'clock' | 'desk'>) {
    this.#deps = deps
  }

  /** Sends the current state to the listener, then every event until the returned function is called. */
  follow(listener: DeskListener): () => void {
    this.#listeners.add(listener)
    listener(this.#state())
    for (const question of this.#requests.values()) listener({ type: 'question', question })
    for (const flood of this.#floods.values()) listener({ type: 'flood', flood })
    for (const { event } of this.#events) listener({ type: 'event', event })
    if (this.#attempt === null) void this.#open()
    return () => {
      this.#listeners.delete(listener)
      if (this.#listeners.size === 0) this.#close()
    }
  }

  /** Throws `conflict` if the request has changed or was decided, and other refusals of the approval service. */
  async decide(decision: PageDecision): Promise<object> {
    const watch = this.#watch
    if (watch === null) throw new AppError('daemon_unreachable', this.#problem ?? 'no approval service is running')
    return watch.decide(decision)
  }

  /**
   * Follows the output of runs that a page shows, until it stops asking. Returns the running ones, or empty without an approval service.
   */
  async followRuns(runs: readonly string[]): Promise<readonly string[]> {
    const until = this.#deps.clock.monotonic() + PAGE_FOLLOW_MS
    for (const run of runs) this.#followed.set(run, until)
    const running = await this.#follow().catch(() => [])
    for (const event of running) if (!this.#events.some((kept) => runOf(kept.event) === runOf(event))) this.#take({ type: 'event', event })
    return running.map(runOf)
  }

  /** Sends the current set of followed runs, and sends it again when some of them expire. */
  async #follow(): Promise<readonly LifecycleEvent[]> {
    const now = this.#deps.clock.monotonic()
    for (const [run, until] of this.#followed) if (until <= now) this.#followed.delete(run)
    this.#unfollow?.cancel()
    const lapses = () => void this.#follow().catch(() => undefined)
    this.#unfollow = this.#followed.size === 0 ? null : this.#deps.clock.setTimeout(lapses, PAGE_FOLLOW_MS, { unref: true })
    // At most one request is in flight, because the approval service disconnects clients that send too many.
    this.#pending ??= this.#watch?.follow([...this.#followed.keys()]).finally(() => (this.#pending = null)) ?? null
    return (await this.#pending) ?? []
  }

  #take(event: PageEvent): void {
    if (event.type === 'question') this.#requests.set(event.question.question_id, event.question)
    else if (event.type === 'settled') this.#requests.delete(event.question_id)
    else if (event.type === 'flood') this.#floods.set(event.flood.asker, event.flood)
    else if (event.type === 'event') this.#keep(event.event)
    this.#emit(event)
  }

  #state(): PageEvent {
    return { type: 'desk', open: this.#watch !== null, problem: this.#problem }
  }

  #emit(event: PageEvent): void {
    for (const listener of this.#listeners) listener(event)
  }

  async #open(): Promise<void> {
    const attempt = new AbortController()
    this.#attempt = attempt
    let problem: string
    try {
      const watch = await this.#deps.desk.watch((event) => {
        if (!attempt.signal.aborted) this.#take(event)
      })
      if (attempt.signal.aborted) return watch.close()
      this.#watch = watch
      this.#problem = null
      this.#emit(this.#state())
      problem = await watch.ended
    } catch (error) {
      problem = errorText(error)
    }
    if (attempt.signal.aborted) return
    this.#reset()
    this.#problem = problem
    this.#emit(this.#state())
    this.#reconnect = this.#deps.clock.setTimeout(() => void this.#open(), RECONNECT_MS, { unref: true })
  }

  /** Keeps the newest events, as many as a new page can receive at once. */
  #keep(event: LifecycleEvent): void {
    this.#events = this.#events.filter((kept) => kept.event.type !== 'exec.output' || runOf(kept.event) !== runOf(event))
    this.#events.push({ event, size: JSON.stringify(event).length })
    let size = this.#events.reduce((sum, one) => sum + one.size, 0)
    while (this.#events.length > MAX_PAGE_EVENTS || size > MAX_PAGE_EVENTS_JSON) size -= this.#events.shift()?.size ?? size
  }

  /** Requests of a disconnected approval service can no longer be decided. */
  #reset(): void {
    this.#watch = null
    this.#requests.clear()
    this.#floods.clear()
  }

  #close(): void {
    this.#reconnect?.cancel()
    this.#unfollow?.cancel()
    this.#followed.clear()
    this.#attempt?.abort()
    this.#attempt = null
    this.#watch?.close()
    this.#reset()
    this.#events = []
  }
}

/** Streams the feed to one page until it disconnects or its session ends. */
export const streamEvents = (
  response: ServerResponse,
  { feed, clock, signal }: { feed: DeskFeed; clock: Clock; signal: AbortSignal },
): void => {
  let beat: Timer | null = null
  let unfollow = (): void => undefined
  const write = (event: PageEvent): void => {
    if (response.destroyed) return
    // Output is sent again later, and the audit log records how runs ended. So a slow page skips these but never an approval request.
    const unread = response.writableLength
    if (event.type === 'event' && (event.event.type === 'exec.output' ? response.writableNeedDrain : unread > MAX_PAGE_EVENTS_BEHIND))
      return
    response.write(`${jsonText(event)}\n`)
    // A page that does not read is disconnected, so that it occupies no memory. It receives the current state when it reconnects.
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
