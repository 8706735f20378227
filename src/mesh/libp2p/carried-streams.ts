import type { Stream } from '@libp2p/interface'
import type { AppError } from '../../base/errors.ts'
import { MAX_CARRIED_BACKLOG } from '../../protocol/relay-limits.ts'
import { holdWindow } from './muxer.ts'

export interface CarriedInit {
  readonly ends: { readonly here: Stream; readonly there: Stream }
  /** So many bytes have come, from whichever end. */
  onBytes(count: number): void
  /** Whether its senders may send no more for now. */
  isShort(): boolean
  /** Once. */
  onEnd(): void
}

/**
 * The two streams of a carried connection. libp2p joins them through lists without end: here each sender gets more window
 * only while little of what it has sent waits for the other, so that at most a window is kept of whoever does not read.
 */
export class CarriedStreams {
  readonly #init: CarriedInit
  readonly #updates: (() => void)[]
  readonly #waiting: (() => number)[] = []
  #ended = false

  constructor(init: CarriedInit) {
    this.#init = init
    const { here, there } = init.ends
    this.#updates = [this.#flow(here, there), this.#flow(there, here)]
    for (const [stream, other] of [
      [here, there],
      [there, here],
    ] as const)
      stream.addEventListener('close', ({ error }) => {
        // libp2p leaves the other one open where it could not tell the first that they are joined.
        if (error !== undefined) other.abort(error)
        this.#end()
      })
  }

  /** Bytes of both directions that have come and are not taken yet. */
  get held(): number {
    return this.#waiting.reduce((sum, waiting) => sum + waiting(), 0)
  }

  /** Senders may send again: see `isShort`. */
  update(): void {
    if (!this.#init.isShort()) for (const update of this.#updates) update()
  }

  abort(reason: AppError): void {
    this.#init.ends.here.abort(reason)
    this.#init.ends.there.abort(reason)
    this.#end()
  }

  #flow(from: Stream, to: Stream): () => void {
    let [received, sent] = [0, 0]
    const waiting = (): number => received - sent + to.writeBufferLength
    this.#waiting.push(waiting)
    const update = holdWindow(from, () => waiting() > MAX_CARRIED_BACKLOG || this.#init.isShort())
    from.addEventListener('message', ({ data }) => {
      received += data.byteLength
      this.#init.onBytes(data.byteLength)
    })
    const send = to.send.bind(to)
    to.send = (data) => {
      sent += data.byteLength
      const room = send(data)
      update()
      return room
    }
    to.addEventListener('drain', update)
    return update
  }

  #end(): void {
    if (this.#ended) return
    this.#ended = true
    this.#init.onEnd()
  }
}
