import type { Stream } from '@libp2p/interface'
import { AppError, asError } from '../base/errors.ts'
import { ReplyStripper } from './libp2p/muxer.ts'

/** Time limit of a normal close. */
const STREAM_CLOSE_MS = 5_000

export interface MeshStreamComponents {
  readonly stream: Stream
  readonly connection: { noteHeard(): void }
}

export interface MeshStreamInit {
  /** Data is sent without waiting for the protocol negotiation (see `negotiation` in `libp2p/muxer.ts`). The peer's reply still precedes its first byte. */
  readonly early: boolean
}

/**
 * One libp2p stream, as other folders use it. It carries bytes in order and ends once. `drained` may be awaited more than once. The
 * receiver must keep up, and bound what it lets the peer send. Use `hold` only on a new stream, because a grown window exceeds what libp2p
 * buffers of a paused stream.
 */
export class MeshStream {
  /** Set it in the turn in which you receive the stream. */
  onData: (chunk: Uint8Array) => void = () => undefined
  /** Called once, after the last data, or null if the peer closed its end normally. */
  onEnd: (error: Error | null) => void = () => undefined
  readonly #stream: Stream
  #stripper: ReplyStripper | null
  #peerClosed = false
  #ended = false

  constructor(components: MeshStreamComponents, init: MeshStreamInit) {
    this.#stream = components.stream
    this.#stripper = init.early ? new ReplyStripper(components.stream.protocol) : null
    // A lost connection ends its streams without an error, so only the peer's own close counts as normal.
    this.#stream.addEventListener('remoteCloseWrite', () => (this.#peerClosed = true))
    this.#stream.addEventListener('close', (event) => this.#end(event.error ?? this.#verdict()))
    this.#stream.addEventListener('end', () => {
      if (this.#peerClosed) this.#end(null)
    })
    this.#stream.addEventListener('message', (event) => {
      components.connection.noteHeard()
      for (const chunk of event.data instanceof Uint8Array ? [event.data] : event.data) this.#receive(chunk)
    })
    if (this.#stream.status !== 'open') queueMicrotask(() => this.#end(this.#verdict()))
  }

  get open(): boolean {
    return this.#stream.writeStatus === 'writable' && this.#stream.status === 'open'
  }

  /** If it returns false, the peer is slow, and the caller must wait for `drained()`. On a closed stream it drops the bytes. */
  send(bytes: Uint8Array): boolean {
    if (!this.open) return true
    try {
      return this.#stream.send(bytes)
    } catch (error) {
      this.abort(asError(error))
      return true
    }
  }

  /** Resolves when `send` can take more or the stream has ended. libp2p's own `onDrain` resolves only once. */
  async drained(): Promise<void> {
    if (!this.open || !this.#stream.writableNeedsDrain) return
    const { promise, resolve } = Promise.withResolvers<void>()
    const done = (): void => resolve()
    this.#stream.addEventListener('drain', done, { once: true })
    this.#stream.addEventListener('close', done, { once: true })
    await promise
    this.#stream.removeEventListener('drain', done)
    this.#stream.removeEventListener('close', done)
  }

  /** Takes only what the peer's window already allows. Call it in a separate turn, not inside `onData`. */
  hold(): void {
    if (this.#stream.readStatus === 'readable') this.#stream.pause()
  }

  /** Continues after `hold`. */
  resume(): void {
    if (this.#stream.readStatus === 'paused') this.#stream.resume()
  }

  /** Sends the queued data and closes this side. A peer that never closes its side is cut off. */
  async close(): Promise<void> {
    const stream = this.#stream
    // A timer, because `AbortSignal.timeout` would also fire for each stream that closed in time.
    const late = new AbortController()
    const abortLate = (): void => {
      const reason = new AppError('timeout', 'the stream did not close in time')
      stream.abort(reason)
      late.abort(reason)
    }
    const timer = setTimeout(abortLate, STREAM_CLOSE_MS).unref()
    stream.addEventListener('close', () => clearTimeout(timer), { once: true })
    try {
      await stream.close({ signal: late.signal })
    } catch (error) {
      this.abort(asError(error))
    }
    if (stream.status !== 'open' && stream.status !== 'closing') clearTimeout(timer)
  }

  /** Resets the stream. */
  abort(reason: Error): void {
    this.#stream.abort(reason)
    this.#end(reason)
  }

  #receive(chunk: Uint8Array): void {
    if (this.#ended) return
    try {
      const rest = this.#stripper === null ? chunk : this.#stripper.push(chunk)
      if (rest === null) return
      this.#stripper = null
      if (rest.length > 0) this.onData(rest)
    } catch (error) {
      this.abort(asError(error))
    }
  }

  #verdict(): Error | null {
    return this.#peerClosed ? null : new AppError('peer_unreachable', 'the connection was lost')
  }

  #end(error: Error | null): void {
    if (this.#ended) return
    this.#ended = true
    this.onEnd(error)
  }
}
