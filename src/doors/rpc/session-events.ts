import { MAX_EVENT_LOG_BYTES, MAX_EVENTS_ANSWERED } from '../../protocol/rexd-limits.ts'

/** One message to the other side; a promise while it is behind. */
export type Send = (message: object) => void | Promise<void>

/** An event of a session, as JSON-RPC has it. */
interface Notification {
  readonly jsonrpc: '2.0'
  readonly method: string
  readonly params: Readonly<Record<string, unknown>>
}

interface Logged {
  readonly cursor: number
  readonly event: Notification
  readonly size: number
}

/** What a question for events is answered. */
export interface EventsSince {
  readonly events: readonly Notification[]
  /** Of the last event here, or as asked. */
  readonly cursor: number
  /** Events that are not kept any more; null = none are missing. */
  readonly gap: { readonly from: number; readonly to: number } | null
}

const notification = (method: string, params: Readonly<Record<string, unknown>>): Notification => ({ jsonrpc: '2.0', method, params })

/**
 * What a session says. Where it is kept, every event has a cursor, and its caller may come back, on another connection
 * too, and go on behind the last that it has. What nobody has seen yet is never given up: its programs are held instead.
 */
export class SessionEvents {
  readonly #sessionId: string
  readonly #log: Logged[] | null
  #bytes = 0
  #last = 0
  /** Everything up to here was sent, or its caller said to have it. */
  #taken = 0
  #send: Send | null = null
  #pumping: Promise<void> | null = null
  #room: PromiseWithResolvers<void> | null = null
  readonly #waiting = new Set<() => void>()

  constructor(init: { sessionId: string; kept: boolean }) {
    this.#sessionId = init.sessionId
    this.#log = init.kept ? [] : null
  }

  /** A promise: whoever writes has to wait. */
  emit(method: string, params: Readonly<Record<string, unknown>>): void | Promise<void> {
    if (this.#log === null) return this.#send?.(notification(method, params))
    const cursor = ++this.#last
    const event = notification(method, { ...params, cursor })
    const size = JSON.stringify(event).length
    this.#log.push({ cursor, event, size })
    this.#bytes += size
    for (const wake of this.#waiting) wake()
    this.#waiting.clear()
    if (this.#send !== null) return this.#pump()
    return this.#hold()
  }

  /** From now on events go there, those behind `cursor` first. */
  attach(send: Send, cursor: number): void {
    this.#send = send
    this.#taken = Math.min(cursor, this.#last)
    if (this.#log !== null) void this.#pump()
  }

  /** Nobody is there. */
  detach(): void {
    this.#send = null
  }

  /** Events behind `cursor`, of which those up to it are had by whoever asks. */
  since(cursor: number): EventsSince {
    this.#taken = Math.max(this.#taken, Math.min(cursor, this.#last))
    this.#makeRoom()
    const at = this.#indexBehind(cursor)
    const behind = (this.#log ?? []).slice(at, at + MAX_EVENTS_ANSWERED)
    const first = behind[0]?.cursor ?? this.#last + 1
    const gap = first > cursor + 1 && cursor < this.#last ? { from: cursor + 1, to: first - 1 } : null
    return { events: behind.map(({ event }) => event), cursor: behind.at(-1)?.cursor ?? Math.max(cursor, gap?.to ?? 0), gap }
  }

  /** Resolves when there is an event behind `cursor`, or when the signal comes. */
  async behind(cursor: number, signal: AbortSignal): Promise<void> {
    if (this.#last > cursor || signal.aborted) return
    await new Promise<void>((resolve) => {
      this.#waiting.add(resolve)
      signal.addEventListener('abort', () => resolve(), { once: true })
    })
  }

  #hold(): void | Promise<void> {
    this.#makeRoom()
    if (this.#bytes <= MAX_EVENT_LOG_BYTES) return undefined
    this.#room ??= Promise.withResolvers<void>()
    return this.#room.promise
  }

  /** What was taken is given up, the oldest first, where there is too much. */
  #makeRoom(): void {
    const log = this.#log ?? []
    while (this.#bytes > MAX_EVENT_LOG_BYTES && log[0] !== undefined && log[0].cursor <= this.#taken) this.#bytes -= log.shift()!.size
    if (this.#bytes > MAX_EVENT_LOG_BYTES) return
    this.#room?.resolve()
    this.#room = null
  }

  async #pump(): Promise<void> {
    this.#pumping ??= this.#sendAll().finally(() => (this.#pumping = null))
    await this.#pumping
    await this.#hold()
  }

  async #sendAll(): Promise<void> {
    for (let next = this.#next(); next !== undefined && this.#send !== null; next = this.#next()) {
      if (next.cursor > this.#taken + 1) await this.#send(this.#gap(this.#taken + 1, next.cursor - 1))
      this.#taken = next.cursor
      await this.#send?.(next.event)
    }
    this.#makeRoom()
  }

  #next(): Logged | undefined {
    return this.#log?.[this.#indexBehind(this.#taken)]
  }

  /** Cursors follow one another without holes. */
  #indexBehind(cursor: number): number {
    return Math.max(0, cursor + 1 - (this.#log?.[0]?.cursor ?? 0))
  }

  #gap(from: number, to: number): Notification {
    return notification('session.gap', { session_id: this.#sessionId, from, to })
  }
}
