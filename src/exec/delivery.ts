import type { Clock, Timer } from '../base/clock.ts'
import { Waiters } from '../base/waiters.ts'
import { ACK_EVERY_BYTES, ACK_EVERY_MS, FRAME_COST } from '../protocol/limits.ts'
import type { RunEvent, RunSink } from './run-spec.ts'

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
  readonly #idle = new Waiters()
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
    await this.#idle.next()
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
    this.#idle.wake()
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
