import type { Clock, Timer } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { Condition } from '../base/wait-queue.ts'
import {
  ACK_EVERY_BYTES,
  ACK_EVERY_MS,
  FRAME_COST,
  MAX_FRAME_DATA,
  MAX_PIECES_UNACKED,
  STDIN_PIECE_BYTES,
} from '../protocol/limits/wire.ts'
import type { RunEvent, RunSink, StdinSource } from './run-spec.ts'

export interface DeliveryComponents {
  readonly sink: RunSink
  readonly clock: Clock
  /** Everything below these sequence numbers has been consumed. */
  readonly ack: (stdout: number, stderr: number) => void
  /** The sink failed: nothing more will be delivered. */
  readonly onSinkError: (error: unknown) => void
}

/**
 * Hands events to the sink one at a time, in order, and acknowledges output only when the sink is done
 * with it: a slow reader here pauses the child there.
 */
export class Delivery {
  readonly #components: DeliveryComponents
  readonly #queue: RunEvent[] = []
  #queuedBytes = 0
  #waiting: RunEvent | null = null
  #muted = false
  readonly #idle = new Condition()
  readonly #consumed = { stdout: 0, stderr: 0 }
  #unacked = 0
  #timer: Timer | null = null

  constructor(components: DeliveryComponents) {
    this.#components = components
  }

  /** Output that arrived and that the sink has not consumed: its bytes, and `FRAME_COST` for each frame. */
  get queuedBytes(): number {
    return this.#queuedBytes
  }

  push(event: RunEvent): void {
    this.#queue.push(event)
    this.#queuedBytes += sizeOf(event)
    if (this.#waiting === null) this.#pump()
  }

  /** The caller is gone: from now on events count as consumed without being passed to the sink. */
  mute(): void {
    if (this.#muted) return
    this.#muted = true
    const waiting = this.#waiting
    this.#waiting = null
    if (waiting !== null) this.#done(waiting)
    this.#pump()
  }

  /** Resolves when the sink has consumed everything pushed so far. */
  async idle(): Promise<void> {
    if (this.#waiting === null && this.#queue.length === 0) return
    await this.#idle.wait()
  }

  /** The last acknowledgement may have been lost. */
  ackAgain(): void {
    if (this.#unacked >= 0) this.#ack()
  }

  /** No acknowledgement is sent any more. */
  close(): void {
    this.#timer?.cancel()
    this.#timer = null
    this.#unacked = Number.NEGATIVE_INFINITY
  }

  #pump(): void {
    for (let event = this.#queue.shift(); event !== undefined; event = this.#queue.shift()) {
      const consumed = this.#show(event)
      if (consumed !== undefined && this.#wait(event, consumed)) return
      this.#done(event)
    }
    this.#idle.notifyAll()
  }

  #show(event: RunEvent): Promise<void> | undefined {
    if (this.#muted) return undefined
    try {
      return this.#components.sink.event(event) ?? undefined
    } catch (error) {
      this.#fail(error)
      return undefined
    }
  }

  /** False when the sink's own call has muted it: then the event is not waited for. */
  #wait(event: RunEvent, consumed: Promise<void>): boolean {
    if (!this.#muted) this.#waiting = event
    const resume = (): void => {
      // `mute` has counted this event and pumped the rest.
      if (this.#waiting !== event) return
      this.#waiting = null
      this.#done(event)
      this.#pump()
    }
    consumed.then(resume, (error: unknown) => {
      if (this.#waiting === event) this.#fail(error)
      resume()
    })
    return !this.#muted
  }

  #fail(error: unknown): void {
    this.#muted = true
    this.#components.onSinkError(error)
  }

  #done(event: RunEvent): void {
    if (event.type !== 'stdout' && event.type !== 'stderr') return
    this.#queuedBytes -= sizeOf(event)
    this.#consumed[event.type] = event.seq + 1
    this.#unacked += event.data.length
    if (this.#unacked >= ACK_EVERY_BYTES) this.#ack()
    else if (this.#unacked >= 0) this.#timer ??= this.#components.clock.setTimeout(() => this.#ack(), ACK_EVERY_MS)
  }

  #ack(): void {
    this.#timer?.cancel()
    this.#timer = null
    this.#unacked = 0
    this.#components.ack(this.#consumed.stdout, this.#consumed.stderr)
  }
}

const sizeOf = (event: RunEvent): number => (event.type === 'stdout' || event.type === 'stderr' ? event.data.length + FRAME_COST : 0)

export interface StdinSenderComponents {
  readonly source: StdinSource
  /** False = wait for `drained`. */
  readonly send: (seq: number, data: Uint8Array, eof: boolean) => boolean
  readonly drained: () => Promise<void>
}

/** Sends stdin no further ahead than the executing side acknowledges. */
export class StdinSender {
  readonly #components: StdinSenderComponents
  /** The data of the frames sent and not acknowledged; the first has number `#acked`. */
  readonly #kept: Uint8Array[] = []
  #acked = 0
  #nextSeq = 0
  #sent = 0
  #unacked = 0
  #stopped = false
  #full = false
  /** What the sender waits for at this moment; `stop` ends every wait. */
  #wait: PromiseWithResolvers<null> | null = null

  constructor(components: StdinSenderComponents) {
    this.#components = components
  }

  /**
   * Resolves when all is sent or `stop` was called. Throws `bad_request` when the source has more or
   * fewer bytes than it said, or what the source throws.
   */
  async run(): Promise<void> {
    const { source } = this.#components
    const chunks = source.chunks[Symbol.asyncIterator]()
    try {
      if (source.len === 0) await this.#send(new Uint8Array(0))
      // A source that never answers must not hold a run that is over.
      for (let next = await this.#next(chunks); next !== null; next = await this.#next(chunks)) await this.#sendAll(next)
      if (!this.#stopped && this.#sent < source.len)
        throw new AppError('bad_request', `stdin ended after ${this.#sent} of ${source.len} bytes`)
    } finally {
      // Not awaited: a source that is in the middle of a read ends after it.
      void Promise.resolve(chunks.return?.()).catch(() => undefined)
    }
  }

  /** Below `seq` all is consumed. False when that cannot be. */
  ack(seq: number): boolean {
    if (seq < this.#acked || seq > this.#nextSeq) return false
    for (const data of this.#kept.splice(0, seq - this.#acked)) this.#unacked -= data.length
    this.#acked = seq
    if (this.#full && this.#unacked < MAX_PIECES_UNACKED) this.#wake()
    return true
  }

  /** Sends again what has not come: everything from `seq` on. False when that cannot be. */
  resume(seq: number): boolean {
    if (seq < this.#acked || seq > this.#nextSeq) return false
    const { send, source } = this.#components
    for (const [index, data] of this.#kept.slice(seq - this.#acked).entries()) {
      const isLast = seq + index === this.#nextSeq - 1 && this.#sent === source.len
      send(seq + index, data, isLast)
    }
    return true
  }

  stop(): void {
    this.#stopped = true
    this.#wake()
  }

  async #next(chunks: AsyncIterator<Uint8Array>): Promise<Uint8Array | null> {
    if (this.#stopped) return null
    const result = await this.#waitFor(chunks.next())
    return result === null || result.done === true ? null : result.value
  }

  async #sendAll(chunk: Uint8Array): Promise<void> {
    if (this.#sent + chunk.length > this.#components.source.len)
      throw new AppError('bad_request', `stdin is longer than the ${this.#components.source.len} bytes announced`)
    for (let rest = chunk; rest.length > 0 && !this.#stopped;) {
      // A frame has bytes of one piece only: that piece can be fed, and acknowledged, without the next.
      const data = rest.subarray(0, Math.min(MAX_FRAME_DATA, STDIN_PIECE_BYTES - (this.#sent % STDIN_PIECE_BYTES)))
      rest = rest.subarray(data.length)
      await this.#send(data)
    }
  }

  async #send(data: Uint8Array): Promise<void> {
    if (this.#unacked >= MAX_PIECES_UNACKED && !this.#stopped) {
      this.#full = true
      await this.#waitFor()
      this.#full = false
    }
    if (this.#stopped) return
    this.#kept.push(data)
    this.#unacked += data.length
    this.#sent += data.length
    const free = this.#components.send(this.#nextSeq++, data, this.#sent === this.#components.source.len)
    if (!free && !this.#stopped) await this.#waitFor(this.#components.drained())
  }

  /** Null when it was woken instead. Each wait has its own promise, so that none piles up on another. */
  async #waitFor<T>(work?: Promise<T>): Promise<T | null> {
    this.#wait = Promise.withResolvers<null>()
    try {
      return await (work === undefined ? this.#wait.promise : Promise.race([this.#wait.promise, work]))
    } finally {
      this.#wait = null
    }
  }

  #wake(): void {
    this.#wait?.resolve(null)
  }
}
