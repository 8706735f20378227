/**
 * Header by which a client and a server of REXD over WebSocket agree that the content of files, which JSON has in base64, may be sent as
 * bytes in binary messages. Both send it in the handshake.
 */
export const CONTENT_HEADER = 'rexd-content'
export const CONTENT_AS_BYTES = 'bytes'

/** Length of the JSON, a big-endian 32-bit number. The JSON follows, with an empty `content`, and then the bytes of the content. */
const LENGTH_BYTES = 4

/** What precedes the content in a binary message. */
export const contentHead = (json: string): Uint8Array => {
  const head = Buffer.allocUnsafe(LENGTH_BYTES + Buffer.byteLength(json))
  head.write(json, head.writeUInt32BE(head.length - LENGTH_BYTES))
  return head
}

export interface ContentMessage {
  readonly json: Buffer
  readonly content: Buffer
}

/** The parts of a binary message, as views, or null if its JSON is not complete. */
export const splitContent = (message: Buffer): ContentMessage | null => {
  if (message.length < LENGTH_BYTES) return null
  const end = LENGTH_BYTES + message.readUInt32BE()
  return end > message.length ? null : { json: message.subarray(LENGTH_BYTES, end), content: message.subarray(end) }
}
