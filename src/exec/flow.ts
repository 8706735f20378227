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
  /** Acknowledges all frames below these sequence numbers. */
  readonly ack: (stdout: number, stderr: number) => void
  /** Called when the sink throws. After that, the sink gets no more output. */
  readonly onSinkError: (error: unknown) => void
}

/** Passes events to the sink one at a time, in order. Output is acknowledged only after the sink has consumed it, so that a slow reader pauses the program on the target. */
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

  /** Bytes of received output that the sink has not consumed, and `FRAME_COST` per frame. */
  get queuedBytes(): number {
    return this.#queuedBytes
  }

  push(event: RunEvent): void {
    this.#queue.push(event)
    this.#queuedBytes += sizeOf(event)
    if (this.#waiting === null) this.#pump()
  }

  /** Counts events as consumed without passing them to the sink, because the client disconnected. */
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

  /** Repeats the last acknowledgement, which may have been lost. */
  ackAgain(): void {
    if (this.#unacked >= 0) this.#ack()
  }

  /** Sends no more acknowledgements. */
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

  /** Returns false if the sink muted this object during the call. Then the event is not awaited. */
  #wait(event: RunEvent, consumed: Promise<void>): boolean {
    if (!this.#muted) this.#waiting = event
    const resume = (): void => {
      // `mute` has already counted this event and continued with the queue.
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
  /** If it returns false, the peer is slow, and the caller must wait for `drained`. */
  readonly send: (seq: number, data: Uint8Array, eof: boolean) => boolean
  readonly drained: () => Promise<void>
}

/** Sends stdin, at most `MAX_PIECES_UNACKED` bytes ahead of the acknowledgements. */
export class StdinSender {
  readonly #components: StdinSenderComponents
  /** Data of the sent, unacknowledged frames. The first has the sequence number `#acked`. */
  readonly #kept: Uint8Array[] = []
  #acked = 0
  #nextSeq = 0
  #sent = 0
  #unacked = 0
  #stopped = false
  #full = false
  /** The current wait of the sender, which `stop` ends. */
  #wait: PromiseWithResolvers<null> | null = null

  constructor(components: StdinSenderComponents) {
    this.#components = components
  }

  /** Resolves when everything is sent or `stop` was called. Throws `bad_request` if the source has more or fewer bytes than announced, or the error of the source. */
  async run(): Promise<void> {
    const { source } = this.#components
    const chunks = source.chunks[Symbol.asyncIterator]()
    try {
      if (source.len === 0) await this.#send(new Uint8Array(0))
      // The iterator is raced with `stop`, because a source may never answer.
      for (let next = await this.#next(chunks); next !== null; next = await this.#next(chunks)) await this.#sendAll(next)
      if (!this.#stopped && this.#sent < source.len)
        throw new AppError('bad_request', `stdin ended after ${this.#sent} of ${source.len} bytes`)
    } finally {
      // Not awaited, because the source may be in the middle of a read.
      void Promise.resolve(chunks.return?.()).catch(() => undefined)
    }
  }

  /** Handles an acknowledgement of all frames below `seq`. Returns false if it is invalid. */
  ack(seq: number): boolean {
    if (seq < this.#acked || seq > this.#nextSeq) return false
    for (const data of this.#kept.splice(0, seq - this.#acked)) this.#unacked -= data.length
    this.#acked = seq
    if (this.#full && this.#unacked < MAX_PIECES_UNACKED) this.#wake()
    return true
  }

  /** Sends all frames from `seq` again. Returns false if that is invalid. */
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
      // A frame has bytes of one piece only, so that the target can consume and acknowledge the piece without the next one.
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

  /** Returns null if `#wake` ended the wait. Each wait has its own promise, so that reactions do not accumulate on one. */
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
