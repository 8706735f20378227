import type { Stream } from '@libp2p/interface'
import { AppError, asError } from '../base/errors.ts'
import { ReplyStripper } from './libp2p/muxer.ts'

/** How long a stream may take to close in peace. */
const STREAM_CLOSE_MS = 5_000

export interface MeshStreamComponents {
  readonly stream: Stream
  /** What carries it. */
  readonly connection: { noteHeard(): void }
}

export interface MeshStreamInit {
  /** We write without waiting for the peer's agreement on the protocol (see `libp2p/negotiation.ts`), which still precedes its first byte. */
  readonly early: boolean
}

/**
 * One libp2p stream as the rooms above see it: bytes in order, one end, and a drain that can be waited
 * for more than once. Who receives must keep up, and bounds what it lets the other side send: `hold` is
 * for a young stream only, since a window that has grown exceeds what libp2p keeps of a paused stream.
 */
export class MeshStream {
  /** Set it in the turn in which the stream was handed out. */
  onData: (chunk: Uint8Array) => void = () => undefined
  /** Called once, after the last data: null when the peer closed its end in peace. */
  onEnd: (error: Error | null) => void = () => undefined
  readonly #stream: Stream
  #stripper: ReplyStripper | null
  #peerClosed = false
  #ended = false

  constructor(components: MeshStreamComponents, init: MeshStreamInit) {
    this.#stream = components.stream
    this.#stripper = init.early ? new ReplyStripper(components.stream.protocol) : null
    // A lost connection ends its streams without an error, so only the peer's own word counts as peace.
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

  /** False when the peer is behind: wait for `drained()`. Nothing is sent on a stream that is not open. */
  send(bytes: Uint8Array): boolean {
    if (!this.open) return true
    try {
      return this.#stream.send(bytes)
    } catch (error) {
      this.abort(asError(error))
      return true
    }
  }

  /** Resolves when `send` has room again or the stream is over. (libp2p's own `onDrain` waits only once.) */
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

  /** Takes no more from the peer than its window already lets it send; in a turn of its own, not inside `onData`. */
  hold(): void {
    if (this.#stream.readStatus === 'readable') this.#stream.pause()
  }

  /** Goes on after `hold`. */
  resume(): void {
    if (this.#stream.readStatus === 'paused') this.#stream.resume()
  }

  /** Sends what is queued and ends our side; a peer that never ends its own is cut off. */
  async close(): Promise<void> {
    const stream = this.#stream
    // Not a signal of the runtime's, which would go off for every stream that was closed in time, too.
    const late = new AbortController()
    const giveUp = (): void => {
      const reason = new AppError('timeout', 'the stream did not close in time')
      stream.abort(reason)
      late.abort(reason)
    }
    const timer = setTimeout(giveUp, STREAM_CLOSE_MS).unref()
    stream.addEventListener('close', () => clearTimeout(timer), { once: true })
    try {
      await stream.close({ signal: late.signal })
    } catch (error) {
      this.abort(asError(error))
    }
    if (stream.status !== 'open' && stream.status !== 'closing') clearTimeout(timer)
  }

  /** Resets the stream: the peer learns that it is over, and nothing else. */
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
