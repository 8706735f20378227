import type { Clock } from '../base/clock.ts'
import { AppError, asError, isAppError } from '../base/errors.ts'
import { OpeningKey, SealingKey, type StreamKeys } from '../identity/link-crypto.ts'
import type { AgentId, RequestId } from '../protocol/ids.ts'
import { AEAD_TAG_BYTES, MAX_SEALED_FRAME } from '../protocol/limits/wire.ts'
import { envelope } from '../protocol/wire/dm.ts'
import { lengthOf } from '../protocol/wire/framing.ts'
import { NO_BYTES } from '../protocol/wire/schema.ts'
import type { DmCounters } from './counters.ts'
import type { FrameStream } from './frame-stream.ts'
import type { Link } from './link.ts'

export interface DmChannelInit {
  readonly self: AgentId
  /** True on the side that opened the stream. */
  readonly opener: boolean
  readonly keys: StreamKeys
  readonly streamNonce: Uint8Array
  /** A plaintext frame (StreamOpen) that is sent before the first sealed one, in the same write. */
  readonly preface?: Uint8Array
  /** Called once, when the first body is sent or the channel ends without one. */
  readonly onUsed?: () => void
  /** Called once, when this side closes the channel or the channel ends. */
  readonly onDone?: () => void
}

type DmChannelDeps = { readonly frames: FrameStream; readonly link: Link; readonly counters: DmCounters; readonly clock: Clock }

const nothing = (): void => undefined

/**
 * One stream of a link. It carries bodies between two agents, each in a sealed envelope. The first twelve bytes of a body are its prefix. A
 * frame that is not the next envelope of this stream is counted and ends only this stream.
 */
export class DmChannel {
  readonly link: Link
  /** The stream nonce, minted by the executor of the side that did not open the stream. A signed Request quotes it. */
  readonly streamNonce: Uint8Array
  readonly opener: boolean
  /** Receives every body from the peer. Set it in the turn of the event loop in which you receive the channel. */
  onBody: (requestId: RequestId, body: Uint8Array) => void = () => undefined
  /** Called before `onClosed`, for the owner of the channel. */
  onReleased: () => void = () => undefined
  readonly #deps: DmChannelDeps
  readonly #self: AgentId
  readonly #seal: SealingKey
  readonly #open: OpeningKey
  #preface: Uint8Array | null
  readonly #onUsed: () => void
  #onDone: () => void
  #bodies = 0
  #end: { readonly error: Error | null } | null = null
  #onClosed: (error: Error | null) => void = () => undefined

  constructor(deps: DmChannelDeps, init: DmChannelInit) {
    this.#deps = deps
    this.link = deps.link
    this.#self = init.self
    this.opener = init.opener
    this.streamNonce = init.streamNonce
    this.#preface = init.preface ?? null
    this.#onUsed = init.onUsed ?? nothing
    this.#onDone = init.onDone ?? nothing
    this.#seal = new SealingKey(init.opener ? init.keys.opener : init.keys.responder)
    this.#open = new OpeningKey(init.opener ? init.keys.responder : init.keys.opener)
  }

  /** Starts receiving. The owner of the channel calls it once, after the other users could set `onBody`. */
  listen(): void {
    this.#deps.frames.listen({ onFrame: (frame) => this.#receive(frame), onEnd: (error) => this.#ended(error) }, MAX_SEALED_FRAME)
  }

  get closed(): boolean {
    return this.#end !== null || !this.#deps.frames.open
  }

  /** True after the first body of the peer was opened. The executor may already be using the stream's nonce. */
  get used(): boolean {
    return this.#bodies > 0
  }

  /** Called once, after the last body. The error is null if either side closed the channel normally. A listener that is set after the end is called too. */
  set onClosed(listener: (error: Error | null) => void) {
    this.#onClosed = listener
    const end = this.#end
    if (end !== null) queueMicrotask(() => listener(end.error))
  }

  /**
   * Seals and sends one body, given whole or in parts. With its prefix, it may have at most `MAX_SEALED_FRAME` bytes less envelope and tag.
   * If it returns false, the peer is slow, and the caller must wait for `drained()` before the next body. On a closed channel it drops the
   * body.
   */
  send(requestId: RequestId, ...body: readonly Uint8Array[]): boolean {
    if (this.closed) return true
    const length = lengthOf(body)
    const head = envelope.encodeHead(
      {
        version: 1,
        from_agent: this.#self,
        to_agent: this.link.agentId,
        request_id: requestId,
        created_at_ms: this.#deps.clock.now(),
        body: NO_BYTES,
      },
      length,
    )
    if (head.length + length + AEAD_TAG_BYTES > MAX_SEALED_FRAME) {
      throw new AppError('too_large', `a body of ${length} bytes does not fit a frame`)
    }
    const sealed = this.#seal.seal(head, ...body)
    this.#deps.counters.add('sealed_frames_sent')
    this.#deps.counters.add('sealed_bytes_sent', lengthOf(sealed))
    const preface = this.#preface
    if (preface === null) return this.#deps.frames.send(sealed)
    this.#preface = null
    this.#onUsed()
    return this.#deps.frames.send(preface, sealed)
  }

  /** Resolves when `send` can take more or the channel has ended. */
  async drained(): Promise<void> {
    await this.#deps.frames.drained()
  }

  async close(): Promise<void> {
    this.#done()
    await this.#deps.frames.close()
  }

  abort(reason: Error = new AppError('shutting_down', 'the channel was given up')): void {
    this.#deps.frames.abort(reason)
    this.#ended(reason)
  }

  #receive(frame: Uint8Array): void {
    if (this.#end !== null) return
    let message
    try {
      message = envelope.decode(this.#open.open(frame))
      if (message.from_agent !== this.link.agentId || message.to_agent !== this.#self) {
        throw new AppError('malformed', 'an envelope between other agents')
      }
    } catch (error) {
      return this.abort(asError(error))
    }
    this.#deps.counters.add('sealed_frames_received')
    this.#deps.counters.add('sealed_bytes_received', frame.length)
    this.#bodies += 1
    this.onBody(message.request_id, message.body)
  }

  #done(): void {
    const tell = this.#onDone
    this.#onDone = nothing
    tell()
  }

  #ended(error: Error | null): void {
    if (this.#end !== null) return
    if (isAppError(error, 'malformed')) this.#deps.counters.add('malformed_frames')
    this.#end = { error }
    if (error === null) void this.#deps.frames.close()
    this.#onUsed()
    this.#done()
    this.onReleased()
    this.#onClosed(error)
  }
}
