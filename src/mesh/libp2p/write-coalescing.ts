import type { MessageStream } from '@libp2p/interface'

/** Private members of an encrypted connection. Sent data waits in `writeBuffer` until `processSendQueue` encrypts it for the `stream` below. */
type Encrypting = MessageStream & {
  readonly stream: MessageStream & { readonly writeStatus: string }
  readonly writeBuffer: { readonly byteLength: number }
  processSendQueue(): boolean
  sendData(data: Written): unknown
}
type Written = { readonly byteLength: number; subarray(): Uint8Array } | Uint8Array

const isEncrypting = (connection: object): connection is Encrypting =>
  ['stream', 'writeBuffer', 'processSendQueue', 'sendData'].every((member) => member in connection)

/** From this size on, data is sent at once. */
export const SMALL_WRITE = 16 * 1024

/**
 * Delays small writes until the end of the event-loop turn, so that they share one Noise message, packet and system call. If this side ends
 * the connection, they are sent first. Connections through a relay are not delayed here, but on the connection to the relay.
 */
export const holdWrites = (connection: object): void => {
  if (!isEncrypting(connection)) throw new TypeError('the encrypted connection lacks members that x0x uses')
  const below = connection.stream
  if (!('socket' in below)) return
  const write = connection.processSendQueue
  const encrypt = connection.sendData.bind(connection)
  connection.sendData = (data) => encrypt(data.byteLength < SMALL_WRITE ? data.subarray() : data)
  let waits = false
  const release = (): void => {
    if (!waits) return
    waits = false
    try {
      write()
    } catch {
      // The error aborts the connection.
    }
  }
  connection.processSendQueue = () => {
    // A sender on a closing connection gets the error at once.
    if (connection.writeBuffer.byteLength >= SMALL_WRITE || below.writeStatus !== 'writable') return write()
    if (!waits) setImmediate(release)
    waits = true
    return !connection.writableNeedsDrain
  }
  for (const end of [connection, below]) {
    const [close, abort] = [end.close.bind(end), end.abort.bind(end)]
    end.close = async (options) => {
      release()
      await close(options)
    }
    end.abort = (error) => {
      release()
      abort(error)
    }
  }
}
