import { AppError } from '../base/errors.ts'
import { execFrame } from '../protocol/exec.ts'
import type { RequestId } from '../protocol/ids.ts'
import { FIRST_UNACKED_PER_RUN, FRAME_COST, MAX_UNACKED_PER_RUN, MAX_UNACKED_TOTAL, MIN_UNACKED_PER_RUN } from '../protocol/limits.ts'
import { NO_BYTES } from '../protocol/schema.ts'
import type { RunOutlet } from './run-outlet.ts'

export type OutputStream = 'stdout' | 'stderr'

/** What all runs together have sent and not seen acknowledged. */
export class UnackedTotal {
  #bytes = 0
  readonly #waiting = new Set<() => void>()

  get full(): boolean {
    return this.#bytes >= MAX_UNACKED_TOTAL
  }

  add(bytes: number): void {
    this.#bytes += bytes
  }

  remove(bytes: number): void {
    this.#bytes -= bytes
    if (this.full || this.#waiting.size === 0) return
    const waiting = [...this.#waiting]
    this.#waiting.clear()
    for (const resume of waiting) resume()
  }

  /** Calls once when there is room again. */
  whenRoom(resume: () => void): void {
    this.#waiting.add(resume)
  }

  cancel(resume: () => void): void {
    this.#waiting.delete(resume)
  }
}

/** Sizes of the frames of one stream from the first unacknowledged one on. */
class Unacked {
  readonly #sizes: number[] = []
  #first = 0

  get next(): number {
    return this.#first + this.#sizes.length
  }

  push(size: number): number {
    return this.#sizes.push(size) - 1 + this.#first
  }

  /** The bytes below `seq` that were still unacknowledged. */
  ack(seq: number): number {
    if (seq < this.#first || seq > this.next) throw new AppError('malformed', `ack ${seq} outside ${this.#first}..${this.next}`)
    const sizes = this.#sizes.splice(0, seq - this.#first)
    this.#first = seq
    return sizes.reduce((sum, size) => sum + size, 0)
  }
}

export interface OutboxComponents {
  readonly outlet: Pick<RunOutlet, 'send' | 'full' | 'drained'>
  readonly total: UnackedTotal
}

export interface OutboxInit {
  readonly requestId: RequestId
  /** Called once after each `push` that answered false, when output may be read again. */
  onRoom(): void
}

/** Numbers a run's output, sends it, and says when the child has to wait for the reader. */
export class Outbox {
  readonly #outlet: OutboxComponents['outlet']
  readonly #total: UnackedTotal
  readonly #init: OutboxInit
  readonly #streams = { stdout: new Unacked(), stderr: new Unacked() }
  readonly #resume = (): void => this.#check()
  #unacked = 0
  #window = FIRST_UNACKED_PER_RUN
  #waiting = false
  #closed = false

  constructor(components: OutboxComponents, init: OutboxInit) {
    this.#outlet = components.outlet
    this.#total = components.total
    this.#init = init
  }

  /** False when the run must read no more until `onRoom`. */
  push(stream: OutputStream, data: Uint8Array): boolean {
    if (this.#closed) return true
    const cost = data.length + FRAME_COST
    const seq = this.#streams[stream].push(cost)
    this.#unacked += cost
    this.#total.add(cost)
    this.#outlet.send(execFrame.encodeHead({ type: stream, request_id: this.#init.requestId, seq, data: NO_BYTES }, data.length), data)
    if (!this.#full) return true
    this.#wait()
    return false
  }

  /** Throws `malformed` for numbers that were never sent or go backwards. */
  ack(seqs: { stdout: number; stderr: number }): void {
    const freed = this.#streams.stdout.ack(seqs.stdout) + this.#streams.stderr.ack(seqs.stderr)
    if (this.#closed) return
    this.#unacked -= freed
    // As TCP's slow start: a reader that takes much is sent much ahead, and one that takes nothing costs little.
    this.#window = Math.min(this.#window + freed, MAX_UNACKED_PER_RUN)
    this.#total.remove(freed)
    this.#check()
  }

  /** Nobody reads any more: what is left is dropped, and nothing has to wait. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#total.cancel(this.#resume)
    this.#total.remove(this.#unacked)
    if (this.#waiting) this.#init.onRoom()
  }

  get #full(): boolean {
    return this.#unacked >= this.#window || this.#othersFill || this.#outlet.full
  }

  /** A run whose reader keeps up goes on with a window of its own, however much others leave unread. */
  get #othersFill(): boolean {
    return this.#total.full && this.#unacked >= MIN_UNACKED_PER_RUN
  }

  #wait(): void {
    this.#waiting = true
    if (this.#unacked >= this.#window) return
    if (this.#othersFill) this.#total.whenRoom(this.#resume)
    else void this.#outlet.drained().then(this.#resume)
  }

  #check(): void {
    if (!this.#waiting || this.#closed) return
    if (this.#full) return this.#wait()
    this.#waiting = false
    this.#init.onRoom()
  }
}
