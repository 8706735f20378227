import { type WaitLimits, Condition } from '../../base/wait-queue.ts'
import { jsonText } from '../../protocol/lines.ts'

/** After this many bytes, the connection is asked whether they arrived, so that the answer comes before space is needed. */
const CONFIRM_EVERY_BYTES = 256 * 1024
/** Bytes of events that a session retains for a client that reconnects or polls. */
export const MAX_EVENT_LOG_BYTES = 4 * 1024 * 1024
/** Maximum number of events in one answer. */
export const MAX_EVENTS_ANSWERED = 1_000

/** Sends a message or its text. Returns a promise while the client is behind. */
export type Send = (message: object | string) => void | Promise<void>

/** Resolves when everything sent so far has arrived. Stays pending if the connection breaks first. */
export type Arrived = () => Promise<void>

/** An event of a session as a JSON-RPC notification. */
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

/** The answer to a poll for events. */
export interface EventsSince {
  readonly events: readonly Notification[]
  /** Cursor of the last event in the answer, or the requested one. */
  readonly cursor: number
  /** Events that were dropped, or null. */
  readonly gap: { readonly from: number; readonly to: number } | null
}

const notification = (method: string, params: Readonly<Record<string, unknown>>): Notification => ({ jsonrpc: '2.0', method, params })

interface ReaderComponents {
  readonly send: Send
  readonly arrived: Arrived | undefined
  /** The first event after a cursor. */
  next(position: number): Logged | undefined
  /** The event that reports dropped events. */
  gap(from: number, to: number): Notification
  /** Called when there may be space for more events. */
  onTaken(): void
}

/** Sends the log to one connection, at the speed of the connection. */
class Reader {
  /** Cursor up to which events have certainly arrived. */
  arrived: number
  /** Cursor up to which events were given to the connection. */
  #position: number
  /** Bytes sent since the last question about arrival. */
  #unasked = 0
  readonly #deps: ReaderComponents
  #left = false
  #running = false

  constructor(deps: ReaderComponents, init: { position: number }) {
    this.#deps = deps
    this.#position = init.position
    this.arrived = init.position
  }

  /** Called when there may be more events. */
  wake(): void {
    if (!this.#running) void this.#run()
  }

  leave(): void {
    this.#left = true
  }

  async #run(): Promise<void> {
    this.#running = true
    const { send, next: nextBehind, gap, onTaken } = this.#deps
    for (let next = nextBehind(this.#position); next !== undefined && !this.#left; next = nextBehind(this.#position)) {
      const missing = next.cursor > this.#position + 1 ? gap(this.#position + 1, next.cursor - 1) : null
      this.#position = missing === null ? next.cursor : next.cursor - 1
      const behind = send(missing ?? next.event)
      this.#sent(next.size)
      if (behind !== undefined) await behind
      if (!this.#left) onTaken()
    }
    // In the same event-loop turn as the last check, so that no event is missed.
    this.#running = false
  }

  /** Checks at times how much has arrived, because sent data may be lost with the connection. */
  #sent(size: number): void {
    const { arrived } = this.#deps
    if (arrived === undefined) {
      this.arrived = this.#position
      return
    }
    this.#unasked += size
    if (this.#unasked < CONFIRM_EVERY_BYTES) return
    this.#unasked = 0
    void this.#confirm(this.#position, arrived)
  }

  async #confirm(position: number, arrived: Arrived): Promise<void> {
    await arrived()
    this.arrived = position
    if (!this.#left) this.#deps.onTaken()
  }
}

/**
 * The events of a session. In a kept session, each has a cursor, and a client may resume after the last event that it has, even on another
 * connection. No event that the client may lack is dropped, and programs are paused instead. There are two exceptions, in which the oldest
 * events are dropped. A client that waits for the end of a program without ever reading events would wait for itself, and a session that is
 * being closed has no waiting client.
 */
export class RpcSessionEvents {
  readonly #sessionId: string
  readonly #log: Logged[] | null
  #bytes = 0
  #last = 0
  /** The highest cursor that the client has confirmed. */
  #had = 0
  #direct: Send | null = null
  #reader: Reader | null = null
  /** The client has read events, by `attach` or `since`. */
  #watched = false
  /** The client has waited for the end of a program. */
  #waitedFor = false
  /** The session is being closed. */
  #closing = false
  readonly #room = new Condition()
  readonly #waiters = new Condition()

  constructor(init: { sessionId: string; kept: boolean }) {
    this.#sessionId = init.sessionId
    this.#log = init.kept ? [] : null
  }

  /** Returns a promise if the writer must wait. */
  emit(method: string, params: Readonly<Record<string, unknown>>): void | Promise<void> {
    if (this.#log === null) return this.#direct?.(notification(method, params))
    const cursor = ++this.#last
    const event = notification(method, { ...params, cursor })
    const size = jsonText(event).length
    this.#log.push({ cursor, event, size })
    this.#bytes += size
    if (!this.#closing) this.#waiters.notifyAll()
    this.#reader?.wake()
    this.#makeRoom()
    if (this.#bytes <= MAX_EVENT_LOG_BYTES) return undefined
    return this.#room.wait()
  }

  /** Sends events to this connection from now on, beginning after `cursor`. Without `arrived`, sent events count as received. */
  attach(send: Send, cursor: number, arrived?: Arrived): void {
    this.detach()
    if (this.#log === null) {
      this.#direct = send
      return
    }
    this.#watched = true
    const position = Math.min(cursor, this.#last)
    this.#had = Math.max(this.#had, position)
    const deps: ReaderComponents = {
      send,
      arrived,
      next: (at) => this.#log?.[this.#indexBehind(at)],
      gap: (from, to) => notification('session.gap', { session_id: this.#sessionId, from, to }),
      onTaken: () => this.#makeRoom(),
    }
    this.#reader = new Reader(deps, { position })
    this.#reader.wake()
    this.#makeRoom()
  }

  /** The connection is gone, and events that it was given may be lost. */
  detach(): void {
    this.#reader?.leave()
    this.#reader = null
    this.#direct = null
  }

  /** Cursor of the last event, or 0 without events. */
  get last(): number {
    return this.#last
  }

  /** Events after `cursor`, which also confirms the events up to it. */
  since(cursor: number): EventsSince {
    this.#watched = true
    this.#had = Math.max(this.#had, Math.min(cursor, this.#last))
    this.#makeRoom()
    const at = this.#indexBehind(cursor)
    const behind = (this.#log ?? []).slice(at, at + MAX_EVENTS_ANSWERED)
    const first = behind[0]?.cursor ?? this.#last + 1
    const gap = first > cursor + 1 && cursor < this.#last ? { from: cursor + 1, to: first - 1 } : null
    return { events: behind.map(({ event }) => event), cursor: behind.at(-1)?.cursor ?? Math.max(cursor, gap?.to ?? 0), gap }
  }

  /** Resolves when there is an event after `cursor`, at the limits of the wait, or when the session has been closed. */
  async behind(cursor: number, patience: WaitLimits): Promise<void> {
    if (this.#last <= cursor) await this.#waiters.waitAtMost(patience)
  }

  /** The client waits for the end of a program and may not read events before. */
  waitedFor(): void {
    this.#waitedFor = true
    this.#makeRoom()
  }

  /** The session is being closed. No program is paused any longer, and a waiting poll gets all events at the end. */
  closing(): void {
    this.#closing = true
    this.#makeRoom()
  }

  /** The session is closed, so no more events follow. */
  close(): void {
    this.closing()
    this.#waiters.notifyAll()
  }

  /** Drops the oldest events above the limit, as far as the client or its connection has them. */
  #makeRoom(): void {
    const log = this.#log ?? []
    const unread = this.#closing || (this.#waitedFor && !this.#watched)
    const spare = unread ? this.#last : Math.max(this.#had, this.#reader?.arrived ?? 0)
    while (this.#bytes > MAX_EVENT_LOG_BYTES && log[0] !== undefined && log[0].cursor <= spare) this.#bytes -= log.shift()!.size
    if (this.#bytes > MAX_EVENT_LOG_BYTES) return
    this.#room.notifyAll()
  }

  /** Cursors are consecutive. */
  #indexBehind(cursor: number): number {
    return Math.max(0, cursor + 1 - (this.#log?.[0]?.cursor ?? 0))
  }
}
