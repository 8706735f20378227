import type { MessageStream, Stream, StreamMessageEvent, StreamMuxer, StreamMuxerFactory } from '@libp2p/interface'
import { AppError, asError } from '../../base/errors.ts'
import { MAX_CONNECTION_BACKLOG } from '../../protocol/limits/wire.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../../protocol/wire/link.ts'
import { endUnanswered } from './heartbeat.ts'
import { FrameSplitter, HEAD_BYTES, TrafficMeter, noTraffic } from './traffic.ts'

/**
 * Protocols that save the round trip of protocol negotiation (multistream-select 1.0.0). Their opener writes data directly after its
 * proposal. libp2p's `negotiateFully: false` is meant for this but has no effect. So the muxer writes the proposal when it makes the
 * stream, and the peer's agreement is removed from the reply.
 */
const EARLY_PROTOCOLS: ReadonlySet<string> = new Set([LINK_PROTOCOL, DM_PROTOCOL])

export const isEarlyProtocol = (protocol: string): boolean => EARLY_PROTOCOLS.has(protocol)

const line = (text: string): Buffer => {
  const bytes = Buffer.from(`${text}\n`, 'utf8')
  return Buffer.concat([Buffer.of(bytes.length), bytes])
}

/** Proposal and agreement have the same bytes. Each line is prefixed by its length, which is below 128. */
export const negotiation = (protocol: string): Buffer => Buffer.concat([line('/multistream/1.0.0'), line(protocol)])

/** Removes the peer's agreement from the start of a stream. Throws `malformed` for anything else. */
export class ReplyStripper {
  readonly #expected: Buffer
  #seen = 0

  constructor(protocol: string) {
    this.#expected = negotiation(protocol)
  }

  /** Returns the bytes after the agreement, or null while it is incomplete. */
  push(chunk: Uint8Array): Uint8Array | null {
    const length = Math.min(chunk.length, this.#expected.length - this.#seen)
    if (!this.#expected.subarray(this.#seen, this.#seen + length).equals(chunk.subarray(0, length))) {
      throw new AppError('malformed', 'the peer does not speak this protocol')
    }
    this.#seen += length
    return this.#seen < this.#expected.length ? null : chunk.subarray(length)
  }
}

/** A window update is sent after the peer has used this much of the window, more than any small message and less than a full frame. */
export const QUIET_WINDOW = 32 * 1024
/** Replies of multistream-select on one inbound stream, a greeting and proposals. gossipsub proposes most, one for each version. */
export const MAX_NEGOTIATION_ANSWERS = 8
/** Time limit for written data after the peer sent GoAway. */
const HANG_UP_MS = 5_000

/** libp2p's type of a muxer option. */
type MakeMuxer<Components> = (components: Components) => StreamMuxerFactory

/** Private members of yamux's muxers and streams, and of the connections below them. */
type Muxer = StreamMuxer & { onData(data: StreamMessageEvent['data']): void; _newStream(...args: readonly unknown[]): Stream }
type Windowed = Stream & {
  sendWindowUpdate(): void
  /** Bytes that the peer may still send, and the size of its window. */
  recvWindowCapacity: number
  recvWindow: number
  state: number
}
type Bounded = MessageStream & { maxWriteBufferLength?: number }

const isMuxer = (muxer: StreamMuxer): muxer is Muxer => 'onData' in muxer && '_newStream' in muxer

const isWindowed = (stream: Stream): stream is Windowed =>
  'sendWindowUpdate' in stream && 'recvWindowCapacity' in stream && 'recvWindow' in stream && 'state' in stream

const meters = new WeakMap<object, TrafficMeter>()

export const trafficMeterOf = (connection: object): TrafficMeter | null =>
  ('muxer' in connection && typeof connection.muxer === 'object' ? meters.get(connection.muxer ?? {}) : undefined) ?? null

/**
 * Opens a stream of one of x0x's own protocols. libp2p's `newStream` would also record in the peer store each time that the peer supports
 * the protocol. That costs more than the stream.
 */
export const openProposed = async (connection: object, protocol: string): Promise<Stream> => {
  const { muxer, maConn } = connection as { readonly muxer?: StreamMuxer; readonly maConn?: MessageStream }
  if (muxer === undefined || maConn === undefined) throw new TypeError('the connection lacks members that x0x uses')
  if (maConn.status !== 'open') throw new AppError('peer_unreachable', `the connection is ${maConn.status}`)
  return muxer.createStream({ protocol })
}

/**
 * Wraps the muxer factory. All input is metered, and buffers are bounded in both directions. Dead connections are closed, proposals per
 * stream are limited, small messages cause no window updates, and streams of x0x's own protocols are already proposed.
 */
export const guardedMuxer =
  <Components>(make: MakeMuxer<Components>): MakeMuxer<Components> =>
  (components) => {
    const factory = make(components)
    const createStreamMuxer = (connection: MessageStream): StreamMuxer => {
      const muxer = factory.createStreamMuxer(connection)
      if (!isMuxer(muxer)) throw new TypeError('the muxer lacks members that x0x uses')
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

/** Splits input into frames (see `FrameSplitter`) and counts it before the muxer handles it. After GoAway, the connection is closed. */
const meterInput = (muxer: Muxer, connection: MessageStream): void => {
  const onData = muxer.onData.bind(muxer)
  const [frames, meter] = [new FrameSplitter(), new TrafficMeter()]
  let isOver = false
  meters.set(muxer, meter)
  muxer.onData = (data) => {
    // Decrypting a Noise message costs work even if it is shorter than a frame header, so it counts as a frame.
    if (data.byteLength < HEAD_BYTES) meter.record({ ...noTraffic(), frames: 1 })
    for (const chunk of data instanceof Uint8Array ? [data] : data)
      for (const block of frames.take(chunk)) {
        meter.record(frames.takeSeen())
        // Metering may have ended this connection, directly or through another one of the same source.
        if (muxer.status === 'open') onData(block)
      }
    // After GoAway no stream can be opened, and no ping is sent.
    if (muxer.status !== 'closed' || isOver) return
    isOver = true
    void hangUp(connection)
  }
}

/** Closes the connection after the written data was sent. */
const hangUp = async (connection: MessageStream): Promise<void> => {
  try {
    await connection.close({ signal: AbortSignal.timeout(HANG_UP_MS) })
  } catch (error) {
    connection.abort(asError(error))
  }
}

/** yamux's `abort` ends with a GoAway frame, and throws if the connection below is already closed. */
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

/** State of yamux's streams. Before it, a window update also carries SYN or ACK, and must be sent. */
const ESTABLISHED = 3

/** Streams whose window is held, each with the condition. */
const held = new WeakMap<Stream, () => boolean>()

/** Holds the peer's window on this stream while `isHeld` returns true. Call the returned function when that may have changed. */
export const holdWindow = (stream: Stream, isHeld: () => boolean): (() => void) => {
  if (!isWindowed(stream)) throw new TypeError('the streams of the muxer lack members that x0x uses')
  held.set(stream, isHeld)
  return () => {
    if (stream.status === 'open') stream.sendWindowUpdate()
  }
}

/** Delays window updates until `QUIET_WINDOW` is used, because each is a separate packet. */
const quietWindow = (stream: Stream): Stream => {
  if (!isWindowed(stream)) throw new TypeError('the streams of the muxer lack members that x0x uses')
  const update = stream.sendWindowUpdate.bind(stream)
  stream.sendWindowUpdate = () => {
    const used = stream.recvWindow - stream.recvWindowCapacity
    if (stream.state === ESTABLISHED && (used < QUIET_WINDOW || held.get(stream)?.() === true)) return
    try {
      update()
    } catch (error) {
      // The connection has just closed. yamux does not catch errors of a stream's first update.
      stream.abort(asError(error))
    }
  }
  return stream
}

/**
 * Limits the replies of multistream-select, which answers any number of two-byte proposals. Before a protocol is agreed, only these replies
 * are sent on an inbound stream, so sent messages are counted.
 */
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

/** Writes the proposal of x0x's own protocols when the stream is made. */
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
