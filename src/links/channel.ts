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

export interface DmChannelComponents {
  readonly frames: FrameStream
  readonly link: Link
  readonly counters: DmCounters
  readonly clock: Clock
}

export interface DmChannelInit {
  readonly self: AgentId
  /** True on the side that opened the stream. */
  readonly opener: boolean
  readonly keys: StreamKeys
  readonly streamNonce: Uint8Array
  /** A plain frame that goes out with the first sealed one (StreamOpen). */
  readonly preface?: Uint8Array
  /** Called once: something was sent, or the channel ended before. */
  readonly onUsed?: () => void
  /** Called once: we closed it, or it ended. */
  readonly onDone?: () => void
}

const nothing = (): void => undefined

/**
 * One stream of a link: bodies between two agents, each in a sealed envelope. A body is whole: its
 * first twelve bytes are its prefix, in both directions. Anything but the next envelope of this very
 * link and stream is counted and ends this stream alone.
 */
export class DmChannel {
  readonly link: Link
  /** Minted by the executor of the side that did not open the stream; a signed Request quotes it. */
  readonly streamNonce: Uint8Array
  readonly opener: boolean
  /** Every body from the peer. Set it in the turn in which the channel was handed out. */
  onBody: (requestId: RequestId, body: Uint8Array) => void = () => undefined
  /** For the channel's keeper, before `onClosed`. */
  onReleased: () => void = () => undefined
  readonly #frames: FrameStream
  readonly #counters: DmCounters
  readonly #clock: Clock
  readonly #self: AgentId
  readonly #seal: SealingKey
  readonly #open: OpeningKey
  #preface: Uint8Array | null
  readonly #onUsed: () => void
  #onDone: () => void
  #bodies = 0
  #end: { readonly error: Error | null } | null = null
  #onClosed: (error: Error | null) => void = () => undefined

  constructor(components: DmChannelComponents, init: DmChannelInit) {
    this.link = components.link
    this.#frames = components.frames
    this.#counters = components.counters
    this.#clock = components.clock
    this.#self = init.self
    this.opener = init.opener
    this.streamNonce = init.streamNonce
    this.#preface = init.preface ?? null
    this.#onUsed = init.onUsed ?? nothing
    this.#onDone = init.onDone ?? nothing
    this.#seal = new SealingKey(init.opener ? init.keys.opener : init.keys.responder)
    this.#open = new OpeningKey(init.opener ? init.keys.responder : init.keys.opener)
  }

  /** Begins to receive. Called once by the channel's keeper, after everybody had a chance to set `onBody`. */
  listen(): void {
    this.#frames.listen({ onFrame: (frame) => this.#receive(frame), onEnd: (error) => this.#ended(error) }, MAX_SEALED_FRAME)
  }

  get closed(): boolean {
    return this.#end !== null || !this.#frames.open
  }

  /** True once a body of the peer was opened: its use of the stream's nonce may be under way. */
  get used(): boolean {
    return this.#bodies > 0
  }

  /** Called once, after the last body: null when either side closed the channel in peace. When set after the end it is called too. */
  set onClosed(listener: (error: Error | null) => void) {
    this.#onClosed = listener
    const end = this.#end
    if (end !== null) queueMicrotask(() => listener(end.error))
  }

  /**
   * Seals and sends one body, given whole or in parts (its prefix included, at most `MAX_SEALED_FRAME` less
   * envelope and tag). False = the peer is behind: wait for `drained()` before the next. On a closed channel
   * nothing is sent.
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
        created_at_ms: this.#clock.now(),
        body: NO_BYTES,
      },
      length,
    )
    if (head.length + length + AEAD_TAG_BYTES > MAX_SEALED_FRAME) {
      throw new AppError('too_large', `a body of ${length} bytes does not fit a frame`)
    }
    const sealed = this.#seal.seal(head, ...body)
    this.#counters.add('sealed_frames_sent')
    this.#counters.add('sealed_bytes_sent', lengthOf(sealed))
    const preface = this.#preface
    if (preface === null) return this.#frames.send(sealed)
    this.#preface = null
    this.#onUsed()
    return this.#frames.send(preface, sealed)
  }

  /** Resolves when `send` has room again or the channel is over. */
  async drained(): Promise<void> {
    await this.#frames.drained()
  }

  /** Sends what is queued and ends the channel. */
  async close(): Promise<void> {
    this.#done()
    await this.#frames.close()
  }

  /** Resets the stream at once. */
  abort(reason: Error = new AppError('shutting_down', 'the channel was given up')): void {
    this.#frames.abort(reason)
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
    this.#counters.add('sealed_frames_received')
    this.#counters.add('sealed_bytes_received', frame.length)
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
    if (isAppError(error, 'malformed')) this.#counters.add('malformed_frames')
    this.#end = { error }
    if (error === null) void this.#frames.close()
    this.#onUsed()
    this.#done()
    this.onReleased()
    this.#onClosed(error)
  }
}
