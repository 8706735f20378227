import { type WaitLimits, Condition } from '../../base/wait-queue.ts'
import { jsonText } from '../../protocol/lines.ts'

/** Of events that a connection was given: after so many it is asked whether they came, so that the answer is there before room is needed. */
const CONFIRM_EVERY_BYTES = 256 * 1024
/** Events of one session that are kept for a caller who comes back, or who asks for them. */
export const MAX_EVENT_LOG_BYTES = 4 * 1024 * 1024
/** Events in one answer. */
export const MAX_EVENTS_ANSWERED = 1_000

/** One message to the other side, or the text of one; a promise while it is behind. */
export type Send = (message: object | string) => void | Promise<void>

/** Resolves when everything that was sent so far has come to the other side; never, where the connection breaks before. */
export type Arrived = () => Promise<void>

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

interface ReaderComponents {
  readonly send: Send
  readonly arrived: Arrived | undefined
  /** The first event behind a cursor. */
  next(position: number): Logged | undefined
  /** What is said in place of events that are not kept any more. */
  gap(from: number, to: number): Notification
  /** There may be room for more events. */
  onTaken(): void
}

/** One connection that is told what the log holds, at its own speed, until it is left. */
class Reader {
  /** Everything up to here has come to the other side, as far as one knows. */
  arrived: number
  /** Everything up to here was given to the connection. */
  #position: number
  /** Bytes behind those whose arrival was asked for. */
  #unasked = 0
  readonly #components: ReaderComponents
  #left = false
  #running = false

  constructor(components: ReaderComponents, init: { position: number }) {
    this.#components = components
    this.#position = init.position
    this.arrived = init.position
  }

  /** There may be more to tell. */
  wake(): void {
    if (!this.#running) void this.#run()
  }

  leave(): void {
    this.#left = true
  }

  async #run(): Promise<void> {
    this.#running = true
    const { send, next: nextBehind, gap, onTaken } = this.#components
    for (let next = nextBehind(this.#position); next !== undefined && !this.#left; next = nextBehind(this.#position)) {
      const missing = next.cursor > this.#position + 1 ? gap(this.#position + 1, next.cursor - 1) : null
      this.#position = missing === null ? next.cursor : next.cursor - 1
      const behind = send(missing ?? next.event)
      this.#sent(next.size)
      if (behind !== undefined) await behind
      if (!this.#left) onTaken()
    }
    // In the same turn as the last look, so that nothing comes between.
    this.#running = false
  }

  /** Asks now and then how far the other side is: what was sent may die with the connection. */
  #sent(size: number): void {
    const { arrived } = this.#components
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
    if (!this.#left) this.#components.onTaken()
  }
}

/**
 * The events of a session. Where they are kept, each has a cursor, and its caller may come back, on another connection
 * too, and go on behind the last that it has. An event that the caller may not have is never dropped: programs are paused
 * instead. But a caller that waits for the end of a program and has never read events would wait for itself, and nobody
 * waits for a session that is being closed: both have the oldest events dropped.
 */
export class RpcSessionEvents {
  readonly #sessionId: string
  readonly #log: Logged[] | null
  #bytes = 0
  #last = 0
  /** The highest cursor that its caller has said to have. */
  #had = 0
  #direct: Send | null = null
  #reader: Reader | null = null
  /** Its caller has read events, by `attach` or `since`. */
  #watched = false
  /** Its caller has waited for the end of a program. */
  #waitedFor = false
  /** The session is being closed. */
  #closing = false
  readonly #room = new Condition()
  readonly #waiters = new Condition()

  constructor(init: { sessionId: string; kept: boolean }) {
    this.#sessionId = init.sessionId
    this.#log = init.kept ? [] : null
  }

  /** A promise: whoever writes has to wait. */
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

  /** From now on events go there, those behind `cursor` first. `arrived`: without it, what is sent has come. */
  attach(send: Send, cursor: number, arrived?: Arrived): void {
    this.detach()
    if (this.#log === null) {
      this.#direct = send
      return
    }
    this.#watched = true
    const position = Math.min(cursor, this.#last)
    this.#had = Math.max(this.#had, position)
    const components: ReaderComponents = {
      send,
      arrived,
      next: (at) => this.#log?.[this.#indexBehind(at)],
      gap: (from, to) => notification('session.gap', { session_id: this.#sessionId, from, to }),
      onTaken: () => this.#makeRoom(),
    }
    this.#reader = new Reader(components, { position })
    this.#reader.wake()
    this.#makeRoom()
  }

  /** The connection is gone, and what it was given may never have arrived. */
  detach(): void {
    this.#reader?.leave()
    this.#reader = null
    this.#direct = null
  }

  /** The cursor of the last event; 0 where there was none. */
  get last(): number {
    return this.#last
  }

  /** Events behind `cursor`, of which those up to it are had by whoever asks. */
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

  /** Resolves when there is an event behind `cursor`, or when the patience is at its end; while the session is being closed, when it is. */
  async behind(cursor: number, patience: WaitLimits): Promise<void> {
    if (this.#last <= cursor) await this.#waiters.waitAtMost(patience)
  }

  /** Its caller waits for the end of a program, and may do nothing else before. */
  waitedFor(): void {
    this.#waitedFor = true
    this.#makeRoom()
  }

  /** The session is being closed: no program is paused any more, and who waits for events, and cannot ask again, gets all of them at the end. */
  closing(): void {
    this.#closing = true
    this.#makeRoom()
  }

  /** It is closed, and nothing more is said. */
  close(): void {
    this.closing()
    this.#waiters.notifyAll()
  }

  /** Where there is too much, the oldest is given up, as far as its caller has it, or a connection that lives. */
  #makeRoom(): void {
    const log = this.#log ?? []
    const unread = this.#closing || (this.#waitedFor && !this.#watched)
    const spare = unread ? this.#last : Math.max(this.#had, this.#reader?.arrived ?? 0)
    while (this.#bytes > MAX_EVENT_LOG_BYTES && log[0] !== undefined && log[0].cursor <= spare) this.#bytes -= log.shift()!.size
    if (this.#bytes > MAX_EVENT_LOG_BYTES) return
    this.#room.notifyAll()
  }

  /** Cursors follow one another without holes. */
  #indexBehind(cursor: number): number {
    return Math.max(0, cursor + 1 - (this.#log?.[0]?.cursor ?? 0))
  }
}
