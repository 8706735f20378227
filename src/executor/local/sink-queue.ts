import { Waiters } from '../../base/waiters.ts'
import { FRAME_COST, MIN_UNACKED_PER_RUN } from '../../protocol/limits.ts'
import type { LocalRunEvent, LocalRunSink } from '../port/local-executor.ts'

/** Bytes of one run that wait for its sink, with FRAME_COST for each event; beyond this its program is paused. */
const HIGH_WATER_MARK = MIN_UNACKED_PER_RUN

const costOf = (event: LocalRunEvent): number => ('data' in event ? event.data.length + FRAME_COST : 0)

/** The events of one run on their way to its sink, one at a time and in order. */
export class SinkQueue {
  readonly #sink: LocalRunSink
  readonly #init: { readonly onRoom: () => void; readonly onSinkError: () => void }
  readonly #queue: LocalRunEvent[] = []
  readonly #idle = new Waiters()
  #bytes = 0
  #delivering = false
  #full = false
  #closed = false

  /** `onRoom`: once after each `push` that answered false. `onSinkError`: the sink rejected, and is told nothing more. */
  constructor(components: { sink: LocalRunSink }, init: { onRoom: () => void; onSinkError: () => void }) {
    this.#sink = components.sink
    this.#init = init
  }

  /** False when the run must read no more until `onRoom`. */
  push(event: LocalRunEvent): boolean {
    if (this.#closed) return true
    this.#queue.push(event)
    this.#bytes += costOf(event)
    if (!this.#delivering) void this.#deliver()
    this.#full = this.#bytes >= HIGH_WATER_MARK
    return !this.#full
  }

  /** Resolves when the sink is done with everything. */
  async idle(): Promise<void> {
    if (this.#delivering) await this.#idle.next()
  }

  /** Nobody reads any more: what is left is dropped, and nothing has to wait. */
  close(): void {
    this.#closed = true
    this.#queue.length = 0
    this.#bytes = 0
    this.#checkRoom()
  }

  /** Without a promise the next event follows in the same turn. */
  async #deliver(): Promise<void> {
    this.#delivering = true
    for (let event = this.#queue.shift(); event !== undefined; event = this.#queue.shift()) {
      try {
        const taken = this.#sink.event(event)
        if (taken !== undefined) await taken
      } catch {
        this.close()
        this.#init.onSinkError()
      }
      if (this.#closed) continue
      this.#bytes -= costOf(event)
      this.#checkRoom()
    }
    this.#delivering = false
    this.#idle.wake()
  }

  #checkRoom(): void {
    if (!this.#full || this.#bytes >= HIGH_WATER_MARK) return
    this.#full = false
    this.#init.onRoom()
  }
}
