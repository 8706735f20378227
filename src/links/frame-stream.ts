import { unlessAborted } from '../base/abort.ts'
import { AppError, asError } from '../base/errors.ts'
import type { MeshStream } from '../mesh/stream.ts'
import { MAX_EARLY_PIECES } from '../protocol/limits/wire.ts'
import { FrameDecoder, encodeFrame } from '../protocol/wire/framing.ts'

const NOTHING = new Uint8Array(0)

export interface FrameStreamInit {
  /** Length limit of a frame, until `listen` replaces it. */
  readonly maxFrame: number
  /** Number of unread bytes that may arrive. More end the stream. */
  readonly maxEarly: number
}

export interface FrameListener {
  onFrame(frame: Uint8Array): void
  /** Called once, or null if the peer ended the stream between two frames. */
  onEnd(error: Error | null): void
}

/** Splits a stream into frames. A handshake first reads them one at a time. Then a listener receives the rest. Frames are decoded only on demand, so that the frames after a handshake are checked against their own limits. */
export class FrameStream {
  readonly #stream: MeshStream
  readonly #frames: FrameDecoder
  #maxEarly: number
  #early: Uint8Array[] = []
  #earlyBytes = 0
  #waiter: PromiseWithResolvers<void> | null = null
  #listener: FrameListener | null = null
  #endReported = false
  #end: { readonly error: Error | null } | null = null

  constructor(components: { stream: MeshStream }, init: FrameStreamInit) {
    this.#stream = components.stream
    this.#frames = new FrameDecoder(init.maxFrame)
    this.#maxEarly = init.maxEarly
    this.#stream.onData = (chunk) => this.#receive(chunk)
    this.#stream.onEnd = (error) => this.#ended(error)
  }

  get open(): boolean {
    return this.#end === null && this.#stream.open
  }

  /** Sends frames, each whole or in parts, in one write. If it returns false, the peer is slow, so the caller waits for `drained()`. */
  send(...payloads: readonly (Uint8Array | readonly Uint8Array[])[]): boolean {
    const frames = payloads.map((payload) => (payload instanceof Uint8Array ? encodeFrame(payload) : encodeFrame(...payload)))
    const [first = NOTHING] = frames
    return this.#stream.send(frames.length === 1 ? first : Buffer.concat(frames))
  }

  async drained(): Promise<void> {
    return this.#stream.drained()
  }

  /** Sets how many bytes may arrive unread. */
  allowEarly(bytes: number): void {
    this.#maxEarly = bytes
  }

  /** Stops reading from the peer until `listen`. */
  hold(): void {
    this.#stream.hold()
  }

  /** Reads the next frame. Throws `malformed` for an invalid frame, the error that ended the stream, or the signal's reason. */
  async read(signal: AbortSignal): Promise<Uint8Array> {
    for (;;) {
      signal.throwIfAborted()
      const frame = this.#next()
      if (frame !== null) return frame
      if (this.#end !== null) throw this.#verdict(this.#end.error) ?? new AppError('peer_rejected', 'the peer ended the stream')
      await this.#more(signal)
    }
  }

  /** Passes every frame to this listener, starting with those that have already arrived. A listener can be replaced by another. */
  listen(listener: FrameListener, maxFrame: number): void {
    this.#frames.maxFrame = maxFrame
    this.#listener = listener
    const chunks = this.#takeEarly()
    this.#pump(NOTHING)
    for (const chunk of chunks) this.#pump(chunk)
    this.#stream.resume()
    if (this.#end !== null) this.#reportEnd(this.#end.error)
  }

  async close(): Promise<void> {
    await this.#stream.close()
  }

  abort(reason: Error): void {
    this.#stream.abort(reason)
  }

  #next(): Uint8Array | null {
    const pending = this.#frames.push(NOTHING).next()
    if (!pending.done) return pending.value
    while (this.#early.length > 0) {
      const chunk = this.#early.shift()!
      this.#earlyBytes -= chunk.length
      const cut = this.#frames.push(chunk).next()
      if (!cut.done) return cut.value
    }
    return null
  }

  async #more(signal: AbortSignal): Promise<void> {
    this.#waiter = Promise.withResolvers()
    await unlessAborted(this.#waiter.promise, signal).finally(() => (this.#waiter = null))
  }

  #takeEarly(): Uint8Array[] {
    const chunks = this.#early
    this.#early = []
    this.#earlyBytes = 0
    return chunks
  }

  #receive(chunk: Uint8Array): void {
    if (this.#listener !== null) return this.#pump(chunk)
    this.#earlyBytes += chunk.length
    if (this.#earlyBytes > this.#maxEarly) return this.abort(new AppError('malformed', 'more bytes than this stream may send unasked'))
    // Copied, because a view of a few bytes would keep its whole message in memory.
    this.#early.push(Uint8Array.from(chunk))
    if (this.#early.length > MAX_EARLY_PIECES) this.#early = [Buffer.concat(this.#early)]
    this.#waiter?.resolve()
  }

  #pump(chunk: Uint8Array): void {
    try {
      for (const frame of this.#frames.push(chunk)) {
        if (this.#end !== null && this.#end.error !== null) return
        this.#listener?.onFrame(frame)
      }
    } catch (error) {
      this.abort(asError(error))
    }
  }

  #ended(error: Error | null): void {
    this.#end = { error }
    this.#waiter?.resolve()
    this.#reportEnd(error)
  }

  #reportEnd(error: Error | null): void {
    if (this.#endReported || this.#listener === null) return
    this.#endReported = true
    this.#listener.onEnd(this.#verdict(error))
  }

  /** A stream that ends inside a frame is malformed. */
  #verdict(error: Error | null): Error | null {
    return error === null && !this.#frames.idle ? new AppError('malformed', 'the stream ended inside a frame') : error
  }
}
