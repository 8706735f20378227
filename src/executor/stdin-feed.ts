import { createHash, type Hash } from 'node:crypto'

import type { Clock, Timer } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { equalBytes } from '../identity/hash.ts'
import type { StdinSink } from '../process/stdin.ts'
import { ACK_EVERY_BYTES, ACK_EVERY_MS, MAX_FRAME_DATA, MAX_STDIN_UNACKED } from '../protocol/limits.ts'

/** What is known of stdin before it comes: all of it, as the Request signed it, or nothing. */
export type StdinAnnouncement = { readonly len: number; readonly sha256: Uint8Array } | 'open'

export interface StdinFeedInit {
  readonly announced: StdinAnnouncement
  /** Everything below this number was taken by the child or can only be dropped. */
  onAck(next: number): void
  /** The bytes are not those that were announced; once. */
  onMismatch(): void
}

/** Frames that wait for the child; small ones share an entry. */
interface Waiting {
  data: Uint8Array
  /** Number of the last frame in it. */
  seq: number
  eof: boolean
}

/** Below this, frames that wait are joined, so that a flood of tiny ones does not cost memory. */
const JOIN_BELOW = 4096

/** What the peer sends as stdin: in order, exactly what it announced, at the speed of the child. */
export class StdinFeed {
  readonly #clock: Clock
  readonly #init: StdinFeedInit
  readonly #hash: Hash = createHash('sha256')
  readonly #queue: Waiting[] = []
  #sink: StdinSink | null = null
  #next = 0
  #received = 0
  #waitingBytes = 0
  #complete = false
  #stopped = false
  #consumed = 0
  #acked = 0
  #unackedBytes = 0
  #ackTimer: Timer | null = null

  constructor(components: { clock: Clock }, init: StdinFeedInit) {
    this.#clock = components.clock
    this.#init = init
  }

  /** Everything below this number has come. */
  get received(): number {
    return this.#next
  }

  /** The last number that was acknowledged. */
  get acked(): number {
    return this.#acked
  }

  /** Throws `malformed` when the peer broke the protocol. */
  accept(frame: { seq: number; data: Uint8Array; eof: boolean }): void {
    if (this.#stopped) return
    const { seq, data, eof } = frame
    if (this.#complete || seq !== this.#next)
      throw new AppError('malformed', `stdin ${seq} instead of ${this.#complete ? 'none' : this.#next}`)
    if (data.length === 0 && !eof) throw new AppError('malformed', 'stdin without data')
    if (this.#waitingBytes + data.length > MAX_STDIN_UNACKED + MAX_FRAME_DATA) throw new AppError('malformed', 'more stdin than the window')
    this.#next += 1
    this.#received += data.length
    this.#hash.update(data)
    if (!this.#asAnnounced(eof)) {
      this.stop()
      this.#init.onMismatch()
      return
    }
    this.#complete = eof
    this.#enqueue({ data, seq, eof })
  }

  /** The child is there: what has come and what comes goes to it. */
  attach(sink: StdinSink): void {
    this.#sink = sink
    void this.#pump(sink)
  }

  stop(): void {
    this.#stopped = true
    this.#queue.length = 0
    this.#ackTimer?.cancel()
    this.#ackTimer = null
  }

  #asAnnounced(eof: boolean): boolean {
    const { announced } = this.#init
    if (announced === 'open') return true
    if (this.#received > announced.len) return false
    return !eof || (this.#received === announced.len && equalBytes(this.#hash.digest(), announced.sha256))
  }

  #enqueue(item: Waiting): void {
    const idle = this.#queue.length === 0
    this.#waitingBytes += item.data.length
    const last = this.#queue.at(-1)
    // The first entry may be on its way into the pipe.
    if (last !== undefined && this.#queue.length > 1 && last.data.length + item.data.length <= JOIN_BELOW) {
      last.data = Buffer.concat([last.data, item.data])
      last.seq = item.seq
      last.eof = item.eof
    } else this.#queue.push(item)
    if (idle && this.#sink !== null) void this.#pump(this.#sink)
  }

  async #pump(sink: StdinSink): Promise<void> {
    for (let item = this.#queue[0]; item !== undefined; item = this.#queue[0]) {
      await sink.write(item.data)
      if (this.#stopped) return
      this.#queue.shift()
      if (item.eof) sink.end()
      this.#took(item)
    }
  }

  #took(item: Waiting): void {
    this.#waitingBytes -= item.data.length
    this.#unackedBytes += item.data.length
    this.#consumed = item.seq + 1
    if (item.eof || this.#unackedBytes >= ACK_EVERY_BYTES) this.#ack()
    else this.#ackTimer ??= this.#clock.setTimeout(() => this.#ack(), ACK_EVERY_MS)
  }

  #ack(): void {
    this.#ackTimer?.cancel()
    this.#ackTimer = null
    if (this.#stopped || this.#consumed === this.#acked) return
    this.#acked = this.#consumed
    this.#unackedBytes = 0
    this.#init.onAck(this.#consumed)
  }
}
