import type { MessageStream, StreamMessageEvent, StreamMuxer } from '@libp2p/interface'

import { AppError } from '../base/errors.ts'
import { MAX_CONNECTION_BACKLOG, MAX_MUXER_FRAME, MAX_UNREAD_ANSWERS } from '../protocol/limits.ts'
import { wrapMuxers } from './muxer-wrapper.ts'

/** A frame's head in the yamux specification: only data has a body; pings and whatever opens a stream ask for an answer. */
const HEAD_BYTES = 12
const TYPE_AT = 1
const FLAGS_AT = 3
const LENGTH_AT = 8
const DATA = 0
const PING = 2
const SYN = 1

/**
 * Cuts what a peer sends into whole yamux frames, in bounded memory: the muxer's own decoder waits for
 * the end of any frame, however long its head says it is, and keeps every piece until then.
 */
export class WholeFrames {
  readonly #onAsking: () => void
  readonly #head = Buffer.alloc(HEAD_BYTES)
  /** The frame that is incomplete, once its head is known. */
  #frame: Buffer | null = null
  #filled = 0

  /** `onAsking`: called for each frame that the muxer will answer, before it gets it. */
  constructor(init: { onAsking: () => void }) {
    this.#onAsking = init.onAsking
  }

  /** Blocks of one or more whole frames. Throws `malformed` for a frame that is too long. */
  *take(chunk: Uint8Array): Generator<Uint8Array, void, undefined> {
    let at = 0
    while (this.#filled > 0 && at < chunk.length) {
      at += this.#fill(chunk.subarray(at))
      const whole = this.#frame
      if (whole === null || this.#filled < whole.length) continue
      this.#frame = null
      this.#filled = 0
      yield whole
    }
    const begin = at
    while (chunk.length - at >= HEAD_BYTES) {
      const size = sizeOf(chunk, at)
      if (chunk.length - at < size) break
      this.#note(chunk, at)
      at += size
    }
    if (at > begin) yield chunk.subarray(begin, at)
    while (at < chunk.length) at += this.#fill(chunk.subarray(at))
  }

  /** Copies what belongs to the incomplete frame; answers how much that was. */
  #fill(bytes: Uint8Array): number {
    const target = this.#frame ?? this.#head
    const part = bytes.subarray(0, target.length - this.#filled)
    target.set(part, this.#filled)
    this.#filled += part.length
    if (this.#frame === null && this.#filled === HEAD_BYTES) {
      this.#frame = Buffer.allocUnsafe(sizeOf(this.#head, 0))
      this.#frame.set(this.#head)
      this.#note(this.#head, 0)
    }
    return part.length
  }

  #note(bytes: Uint8Array, at: number): void {
    if (bytes[at + TYPE_AT] === PING || ((bytes[at + FLAGS_AT] ?? 0) & SYN) !== 0) this.#onAsking()
  }
}

const sizeOf = (bytes: Uint8Array, at: number): number => {
  if (bytes[at + TYPE_AT] !== DATA) return HEAD_BYTES
  const length = new DataView(bytes.buffer, bytes.byteOffset + at, HEAD_BYTES).getUint32(LENGTH_AT)
  if (length > MAX_MUXER_FRAME) throw new AppError('malformed', `a muxer frame of ${length} bytes is longer than ${MAX_MUXER_FRAME}`)
  return HEAD_BYTES + length
}

/** What libp2p's muxers and streams have beside their interfaces. */
type Receiving = StreamMuxer & { onData(data: StreamMessageEvent['data']): void }
type Bounded = MessageStream & { maxWriteBufferLength?: number }

const isReceiving = (muxer: StreamMuxer): muxer is Receiving => 'onData' in muxer && typeof muxer.onData === 'function'

const guarded = (muxer: StreamMuxer, connection: MessageStream): StreamMuxer => {
  const bounded: Bounded = connection
  bounded.maxWriteBufferLength = MAX_CONNECTION_BACKLOG
  let unread = 0
  // Who asks for answers and does not read them would fill our memory, twelve bytes and an object at a time.
  const onAsking = (): void => {
    unread = connection.writableNeedsDrain ? unread + 1 : 0
    if (unread > MAX_UNREAD_ANSWERS) throw new AppError('rate_limited', 'the peer asks for answers that it does not read')
  }
  if (!isReceiving(muxer)) throw new TypeError('the muxer has no way in that could be guarded')
  const onData = muxer.onData.bind(muxer)
  const frames = new WholeFrames({ onAsking })
  muxer.onData = (data) => {
    for (const chunk of data instanceof Uint8Array ? [data] : data) for (const whole of frames.take(chunk)) onData(whole)
  }
  return muxer
}

/** Wraps a muxer so that what one connection can make us keep is bounded in both directions. */
export const guardedMuxer = wrapMuxers(guarded)
