import type { ConnectionProtector, MessageStream, StreamMessageEvent } from '@libp2p/interface'
import type { Socket } from 'node:net'
import { inOneWrite } from '../../base/buffers.ts'
import { asError } from '../../base/errors.ts'
import { ReplyStripper, negotiation } from './muxer.ts'

/** Private members of a connection below Noise, of TCP or through a relay. `onData` receives what was read. */
type RawStream = MessageStream & { sendData(data: unknown): unknown; sendReset(error: Error): void; onData(data: Data): void }
type TcpStream = RawStream & { readonly socket: Socket }
type Data = StreamMessageEvent['data']

const isRaw = (stream: MessageStream): stream is RawStream => 'sendData' in stream && 'sendReset' in stream && 'onData' in stream
const isTcp = (stream: RawStream): stream is TcpStream => 'socket' in stream

/** libp2p's hook for private networks. Only this hook sees a connection before Noise. */
export const betweenSocketAndNoise = (): ConnectionProtector => ({
  protect: async (stream) => {
    if (!isRaw(stream)) throw new TypeError('the connection lacks members that x0x uses')
    if (isTcp(stream)) corkWrites(stream)
    if (stream.direction === 'outbound') agreeEarly(stream)
    else demandEncrypter(stream)
    return stream
  },
})

/** Joins the writes of one tick. Each part of a Noise message would be a system call and a packet. A reset sends them first. */
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

/** The only encrypter, by its name in multistream-select. */
const ENCRYPTER = '/noise'

/**
 * Saves the round trip of negotiation for outbound connections. libp2p gets the agreement on Noise at once. So the handshake's first
 * message directly follows the proposal. The peer's agreement is removed when it arrives.
 */
const agreeEarly = (stream: RawStream): void => {
  watchFirst(stream, (_data, rest) => rest)
  stream.push(negotiation(ENCRYPTER))
}

/** Requires an inbound connection to propose Noise at once. multistream-select would answer any number of two-byte proposals, unmetered, from an unknown machine. */
const demandEncrypter = (stream: RawStream): void => watchFirst(stream, (data) => data)

/**
 * Passes input through `pass` until the peer has named Noise. `rest` has the bytes after the name, or is null while the name is incomplete.
 * Another name ends the stream.
 */
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
