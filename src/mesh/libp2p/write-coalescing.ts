import type { MessageStream } from '@libp2p/interface'

/** An encrypted connection: what is sent on it waits in its `writeBuffer` until `processSendQueue` encrypts it for the `stream` below. */
type Encrypting = MessageStream & {
  readonly stream: MessageStream & { readonly writeStatus: string }
  readonly writeBuffer: { readonly byteLength: number }
  processSendQueue(): boolean
  sendData(data: Written): unknown
}
type Written = { readonly byteLength: number; subarray(): Uint8Array } | Uint8Array

const isEncrypting = (connection: object): connection is Encrypting =>
  ['stream', 'writeBuffer', 'processSendQueue', 'sendData'].every((member) => member in connection)

/** As much leaves at once, and so bulk waits for nothing. */
export const SMALL_WRITE = 16 * 1024

/**
 * What is small waits until the end of its turn of the event loop: the frames of a turn are one message of Noise, one packet and
 * one call of the system, as the end of a stream and the beginning of the next are. However the connection ends by us, what waits
 * leaves before. Through a relay nothing waits here: it waits on the connection to the relay.
 */
export const holdWrites = (connection: object): void => {
  if (!isEncrypting(connection)) throw new TypeError('the encrypted connection has not the members that we rely on')
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
      // The connection is aborted by what was thrown.
    }
  }
  connection.processSendQueue = () => {
    // On one that ends, whoever sends is told at once.
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
