import type { ConnectionProtector, MessageStream, StreamMessageEvent } from '@libp2p/interface'
import type { Socket } from 'node:net'
import { inOneWrite } from '../../base/buffers.ts'
import { asError } from '../../base/errors.ts'
import { ReplyStripper, negotiation } from './muxer.ts'

/** What a connection below Noise has beside its interface, of TCP or through a relay; `onData` is where it hands over what it read. */
type RawStream = MessageStream & { sendData(data: unknown): unknown; sendReset(error: Error): void; onData(data: Data): void }
type TcpStream = RawStream & { readonly socket: Socket }
type Data = StreamMessageEvent['data']

const isRaw = (stream: MessageStream): stream is RawStream => 'sendData' in stream && 'sendReset' in stream && 'onData' in stream
const isTcp = (stream: RawStream): stream is TcpStream => 'socket' in stream

/** libp2p's hook for private networks: the one place where a connection can be touched before Noise begins. */
export const betweenSocketAndNoise = (): ConnectionProtector => ({
  protect: async (stream) => {
    if (!isRaw(stream)) throw new TypeError('the connection has not the members that we rely on')
    if (isTcp(stream)) corkWrites(stream)
    if (stream.direction === 'outbound') agreeEarly(stream)
    else demandEncrypter(stream)
    return stream
  },
})

/**
 * A message of Noise comes in two or three pieces, and what precedes the first as one more; each would be a system call and a packet
 * of its own. What is written in one tick leaves together, before the connection is reset at the latest.
 */
const corkWrites = (stream: TcpStream): void => {
  const { socket } = stream
  const [sendData, sendReset] = [stream.sendData.bind(stream), stream.sendReset.bind(stream)]
  stream.sendData = (data) => {
    inOneWrite(socket, process.nextTick)
    return sendData(data)
  }
  stream.sendReset = (error) => {
    socket.uncork()
    sendReset(error)
  }
}

/** The only encrypter of our mesh, as multistream-select names it. */
const ENCRYPTER = '/noise'

/**
 * Saves the round trip of negotiation.ts when we dial: libp2p is given the agreement on Noise at once, so that the
 * handshake's first message goes out behind the proposal, and the peer's agreement is taken off when it comes.
 */
const agreeEarly = (stream: RawStream): void => {
  watchFirst(stream, (_data, rest) => rest)
  stream.push(negotiation(ENCRYPTER))
}

/**
 * Who dials us proposes Noise at once, and nothing else. multistream-select would answer any number of proposals, each
 * two bytes and unmetered, before anybody has said who it is.
 */
const demandEncrypter = (stream: RawStream): void => watchFirst(stream, (data) => data)

/** Until the peer has named Noise, libp2p gets what `pass` leaves of its bytes; `rest`: those behind the name, null before it is whole. Another name ends the stream. */
const watchFirst = (stream: RawStream, pass: (data: Data, rest: Uint8Array | null) => Data | null): void => {
  const stripper = new ReplyStripper(ENCRYPTER)
  const onData = stream.onData.bind(stream)
  stream.onData = (data) => {
    try {
      const rest = stripper.push(data.subarray())
      if (rest !== null) stream.onData = onData
      const passed = pass(data, rest)
      if (passed !== null) onData(passed)
    } catch (error) {
      stream.abort(asError(error))
    }
  }
}
