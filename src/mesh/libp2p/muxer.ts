import type { MessageStream, Stream, StreamMessageEvent, StreamMuxer, StreamMuxerFactory } from '@libp2p/interface'
import { AppError, asError } from '../../base/errors.ts'
import { MAX_CONNECTION_BACKLOG } from '../../protocol/limits/wire.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../../protocol/wire/link.ts'
import { endUnanswered } from './heartbeat.ts'
import { FrameSplitter, HEAD_BYTES, TrafficMeter, noTraffic } from './traffic.ts'

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
export const negotiation = (protocol: string): Buffer => Buffer.concat([line('/multistream/1.0.0'), line(protocol)])

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

/** A window update is sent once the peer has used this much of the window: more than any small message, less than a frame of bulk. */
export const QUIET_WINDOW = 32 * 1024
/** Answers of multistream-select on one inbound stream: the greeting, and one for each version of gossipsub, which proposes most. */
export const MAX_NEGOTIATION_ANSWERS = 8
/** How long a peer that has said goodbye may take what was written before. */
const HANG_UP_MS = 5_000

/** What libp2p is given as a muxer. */
type MakeMuxer<Components> = (components: Components) => StreamMuxerFactory

/** What yamux's muxers and streams, and the connections below them, have beside their interfaces. */
type Muxer = StreamMuxer & { onData(data: StreamMessageEvent['data']): void; _newStream(...args: readonly unknown[]): Stream }
type Windowed = Stream & {
  sendWindowUpdate(): void
  /** What the peer may still send, and what it may have on its way at most. */
  recvWindowCapacity: number
  recvWindow: number
  state: number
}
type Bounded = MessageStream & { maxWriteBufferLength?: number }

const isMuxer = (muxer: StreamMuxer): muxer is Muxer => 'onData' in muxer && '_newStream' in muxer

const isWindowed = (stream: Stream): stream is Windowed =>
  'sendWindowUpdate' in stream && 'recvWindowCapacity' in stream && 'recvWindow' in stream && 'state' in stream

const meters = new WeakMap<object, TrafficMeter>()

/** The meter of a connection that one of our muxers carries. */
export const trafficMeterOf = (connection: object): TrafficMeter | null =>
  ('muxer' in connection && typeof connection.muxer === 'object' ? meters.get(connection.muxer ?? {}) : undefined) ?? null

/**
 * A stream of one of our own protocols. libp2p's `newStream` is this, and besides writes into its peer store, each time, that
 * the peer speaks the protocol: more work than the stream itself.
 */
export const openProposed = async (connection: object, protocol: string): Promise<Stream> => {
  const { muxer, maConn } = connection as { readonly muxer?: StreamMuxer; readonly maConn?: MessageStream }
  if (muxer === undefined || maConn === undefined) throw new TypeError('the connection has not the members that we rely on')
  if (maConn.status !== 'open') throw new AppError('peer_unreachable', `the connection is ${maConn.status}`)
  return muxer.createStream({ protocol })
}

/**
 * Wraps what makes muxers, so that all that comes is metered and what one connection can make us keep is bounded in both
 * directions; a peer that gives no sign of life is given up; who opens a stream is answered few proposals; small messages are not each answered by a window update; and
 * streams of our own protocols come back already proposed.
 */
export const guardedMuxer =
  <Components>(make: MakeMuxer<Components>): MakeMuxer<Components> =>
  (components) => {
    const factory = make(components)
    const createStreamMuxer = (connection: MessageStream): StreamMuxer => {
      const muxer = factory.createStreamMuxer(connection)
      if (!isMuxer(muxer)) throw new TypeError('the muxer has not the members that we rely on')
      const bounded: Bounded = connection
      bounded.maxWriteBufferLength = MAX_CONNECTION_BACKLOG
      meterInput(muxer, connection)
      abortQuietly(muxer)
      endUnanswered(muxer, connection)
      const newStream = muxer._newStream.bind(muxer)
      muxer._newStream = (...args) => limitAnswers(quietWindow(newStream(...args)))
      return proposeEarly(muxer)
    }
    return { protocol: factory.protocol, createStreamMuxer }
  }

/** Before the muxer gets them, bytes are cut into frames (see `FrameSplitter`) and counted. Who says goodbye is hung up on. */
const meterInput = (muxer: Muxer, connection: MessageStream): void => {
  const onData = muxer.onData.bind(muxer)
  const [frames, meter] = [new FrameSplitter(), new TrafficMeter()]
  let isOver = false
  meters.set(muxer, meter)
  muxer.onData = (data) => {
    // Decrypting a message of Noise is work, even when it brings less than one head: counted as a frame.
    if (data.byteLength < HEAD_BYTES) meter.record({ ...noTraffic(), frames: 1 })
    for (const chunk of data instanceof Uint8Array ? [data] : data)
      for (const block of frames.take(chunk)) {
        meter.record(frames.takeSeen())
        // Metering may have ended the connection, or another connection of the same source this one.
        if (muxer.status === 'open') onData(block)
      }
    // On a connection that stayed nothing could be opened any more, and no ping is sent.
    if (muxer.status !== 'closed' || isOver) return
    isOver = true
    void hangUp(connection)
  }
}

/** What was written before goes out, as long as it is taken. */
const hangUp = async (connection: MessageStream): Promise<void> => {
  try {
    await connection.close({ signal: AbortSignal.timeout(HANG_UP_MS) })
  } catch (error) {
    connection.abort(asError(error))
  }
}

/** yamux's `abort` ends with a GoAway frame, and throws where ending its streams has already closed the connection below. */
const abortQuietly = (muxer: Muxer): void => {
  const abort = muxer.abort.bind(muxer)
  muxer.abort = (error) => {
    try {
      abort(error)
    } catch {
      // The connection is closed, so the GoAway frame has no receiver.
    }
  }
}

/** A state of yamux's streams. Before it, a window update also carries the SYN or ACK, and must not be held back. */
const ESTABLISHED = 3

/** Streams whose peers may not send more for now, and how that is asked. */
const held = new WeakMap<Stream, () => boolean>()

/** While `isHeld` says so, the peer gets no more window on this stream. The answer is to be called when that may have changed. */
export const holdWindow = (stream: Stream, isHeld: () => boolean): (() => void) => {
  if (!isWindowed(stream)) throw new TypeError('the streams of the muxer have not the members that we rely on')
  held.set(stream, isHeld)
  return () => {
    if (stream.status === 'open') stream.sendWindowUpdate()
  }
}

/** Holds window updates back until `QUIET_WINDOW` is used: each is a packet of its own. */
const quietWindow = (stream: Stream): Stream => {
  if (!isWindowed(stream)) throw new TypeError('the streams of the muxer have not the members that we rely on')
  const update = stream.sendWindowUpdate.bind(stream)
  stream.sendWindowUpdate = () => {
    const used = stream.recvWindow - stream.recvWindowCapacity
    if (stream.state === ESTABLISHED && (used < QUIET_WINDOW || held.get(stream)?.() === true)) return
    try {
      update()
    } catch (error) {
      // The connection has just closed. The first update of a stream is sent where nobody would catch it.
      stream.abort(asError(error))
    }
  }
  return stream
}

/** multistream-select answers any number of proposals, of two bytes each. Until a protocol is agreed on we send nothing else on an inbound stream, so what is sent is counted. */
const limitAnswers = (stream: Stream): Stream => {
  if (stream.direction !== 'inbound') return stream
  const send = stream.send.bind(stream)
  let answers = 0
  stream.send = (data) => {
    if (stream.protocol !== '') stream.send = send
    else if (++answers > MAX_NEGOTIATION_ANSWERS) stream.abort(new AppError('rate_limited', 'too many proposals'))
    return send(data)
  }
  return stream
}

/** The proposal of one of our own protocols is written as the stream is made: see negotiation.ts. */
const proposeEarly = (muxer: Muxer): StreamMuxer => {
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
