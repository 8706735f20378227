import type { MessageStream, Stream, StreamMessageEvent, StreamMuxer } from '@libp2p/interface'

import { AppError, errorText } from '../base/errors.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../protocol/link.ts'
import { wrapMuxers } from './muxer-wrapper.ts'

/**
 * Saves the round trip of protocol negotiation (multistream-select 1.0.0): the opener of one of our own
 * streams writes its first bytes right behind its proposal. libp2p's `negotiateFully: false` is meant
 * for this and does nothing, so the proposal is written as the muxer makes the stream, and the peer's
 * agreement is taken off the front of what comes back.
 */
const EARLY_PROTOCOLS: ReadonlySet<string> = new Set([LINK_PROTOCOL, DM_PROTOCOL])

export const isEarlyProtocol = (protocol: string): boolean => EARLY_PROTOCOLS.has(protocol)

const line = (text: string): Buffer => {
  const bytes = Buffer.from(`${text}\n`, 'utf8')
  return Buffer.concat([Buffer.of(bytes.length), bytes])
}

/** Both the proposal and the agreement: each line behind its length, which is below 128. */
const negotiation = (protocol: string): Buffer => Buffer.concat([line('/multistream/1.0.0'), line(protocol)])

/** Takes the peer's agreement off the front of a stream. Throws `malformed` when it is anything else. */
export class ReplyStripper {
  readonly #expected: Buffer
  #seen = 0

  constructor(protocol: string) {
    this.#expected = negotiation(protocol)
  }

  /** What follows the agreement; null while it is incomplete. */
  push(chunk: Uint8Array): Uint8Array | null {
    const length = Math.min(chunk.length, this.#expected.length - this.#seen)
    if (!this.#expected.subarray(this.#seen, this.#seen + length).equals(chunk.subarray(0, length))) {
      throw new AppError('malformed', 'the peer does not speak this protocol')
    }
    this.#seen += length
    return this.#seen < this.#expected.length ? null : chunk.subarray(length)
  }
}

const proposeEarly = (muxer: StreamMuxer): StreamMuxer => {
  const create = muxer.createStream.bind(muxer)
  muxer.createStream = async (options): Promise<Stream> => {
    const stream = await create(options)
    if (options?.protocol !== undefined && isEarlyProtocol(options.protocol)) {
      stream.send(negotiation(options.protocol))
      stream.protocol = options.protocol
    }
    return stream
  }
  return muxer
}

/** Wraps a muxer so that streams of our own protocols come back already proposed. */
export const earlyStreams = wrapMuxers(proposeEarly)

/** The only encrypter of our mesh, as multistream-select names it. */
const ENCRYPTER = '/noise'

/** What libp2p's message streams have beside their interface: where a transport hands over what it read. */
type Receiving = MessageStream & { onData(data: Data): void }
type Data = StreamMessageEvent['data']

/**
 * Saves the same round trip when we dial: libp2p is given the agreement on Noise at once, so that the
 * handshake's first message goes out behind the proposal, and the peer's is taken off when it comes.
 */
export const agreeEarly = (stream: MessageStream): void => {
  if (stream.direction !== 'outbound' || !isReceiving(stream)) return
  watchFirst(stream, (_data, rest) => rest)
  stream.push(negotiation(ENCRYPTER))
}

/**
 * Who dials us proposes Noise at once, and nothing else. multistream-select would answer any number of proposals, each
 * two bytes and unmetered, before anybody has said who it is.
 */
export const demandEncrypter = (stream: MessageStream): void => {
  if (stream.direction !== 'inbound' || !isReceiving(stream)) return
  watchFirst(stream, (data) => data)
}

/** Until the peer has said that it speaks Noise, libp2p gets what `pass` leaves of it; `rest`: what is behind that word, null before it is whole. Another word ends the stream. */
const watchFirst = (stream: Receiving, pass: (data: Data, rest: Uint8Array | null) => Data | null): void => {
  const stripper = new ReplyStripper(ENCRYPTER)
  const onData = stream.onData.bind(stream)
  stream.onData = (data) => {
    try {
      const rest = stripper.push(data.subarray())
      if (rest !== null) stream.onData = onData
      const passed = pass(data, rest)
      if (passed !== null) onData(passed)
    } catch (error) {
      stream.abort(error instanceof Error ? error : new Error(errorText(error)))
    }
  }
}

const isReceiving = (stream: MessageStream): stream is Receiving => 'onData' in stream
