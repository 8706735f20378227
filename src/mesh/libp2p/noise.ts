import { type ICryptoInterface, noise } from '@chainsafe/libp2p-noise'
import { defaultCrypto } from '@chainsafe/libp2p-noise/crypto'
import { AppError } from '../../base/errors.ts'
import { secretKeyOf } from '../../identity/hash.ts'
import { AEAD_TAG_BYTES } from '../../protocol/limits/wire.ts'
import { holdWrites } from './write-coalescing.ts'

/** From this size on, Noise uses the cipher of node:crypto. Its own threshold is 1,200 bytes. */
export const LARGE_MESSAGE = 2 * 1024

/** Noise passes large messages and the raw key to node:crypto, which also accepts a key object. */
const keyFor = (text: { readonly byteLength: number }, key: Uint8Array): Uint8Array =>
  text.byteLength < LARGE_MESSAGE ? key : (secretKeyOf(key) as unknown as Uint8Array)

/** Noise's default crypto, except that each key is imported once and not with every large message. */
const crypto: ICryptoInterface = {
  ...defaultCrypto,
  chaCha20Poly1305Encrypt: (text, nonce, ad, key) => defaultCrypto.chaCha20Poly1305Encrypt(text, nonce, ad, keyFor(text, key)),
  chaCha20Poly1305Decrypt: (text, nonce, ad, key, target) =>
    defaultCrypto.chaCha20Poly1305Decrypt(text, nonce, ad, keyFor(text, key), target),
}

/** Private members of an encrypted connection. */
type Decrypting = { decrypt(message: Message): unknown; readonly decoder: { lengthDecoder: (bytes: Message) => number } }
type Message = Uint8Array | { readonly length: number; subarray(): Uint8Array }

/** Each message is prefixed by its length. */
const LENGTH_BYTES = 2
/** Thrown while the next length is incomplete, which happens after each read. It is one object, because capturing a stack trace takes longer than decrypting. */
const NOT_YET = new RangeError('the length of the next message is not there yet')

const isDecrypting = (connection: object): connection is Decrypting => 'decrypt' in connection && 'decoder' in connection

/** Joins the pieces of a large message, because Noise would copy them twice. An empty message ends the connection, because it never reaches the muxer and its meter. */
const guarded = <Secured extends { connection: object }>(secured: Secured): Secured => {
  const { connection } = secured
  if (!isDecrypting(connection)) throw new TypeError('the encrypted connection lacks members that x0x uses')
  const decrypt = connection.decrypt.bind(connection)
  connection.decrypt = (message) => decrypt(message instanceof Uint8Array ? message : message.subarray())
  const { decoder } = connection
  const { lengthDecoder } = decoder
  decoder.lengthDecoder = (bytes) => {
    if (bytes.length < LENGTH_BYTES) throw NOT_YET
    const length = lengthDecoder(bytes)
    if (length <= AEAD_TAG_BYTES) throw new AppError('malformed', 'an empty Noise message')
    return length
  }
  holdWrites(connection)
  return secured
}

/** Requires the muxer to be agreed in Noise's handshake payload. Otherwise multistream-select would answer any number of proposals before there is a meter. */
const demandMuxer = <Secured extends { streamMuxer?: unknown }>(secured: Secured): Secured => {
  if (secured.streamMuxer === undefined) throw new AppError('peer_rejected', 'the Noise handshake negotiated no muxer')
  return secured
}

/** libp2p's Noise, with faster decryption of large messages, and without unmetered repetitions (`guarded`, `demandMuxer`). */
export const noiseEncrypter = (): ReturnType<typeof noise> => {
  const create = noise({ crypto })
  return (components) => {
    const encrypter = create(components)
    const inbound = encrypter.secureInbound.bind(encrypter)
    const outbound = encrypter.secureOutbound.bind(encrypter)
    encrypter.secureInbound = async (connection, options) => demandMuxer(guarded(await inbound(connection, options)))
    encrypter.secureOutbound = async (connection, options) => guarded(await outbound(connection, options))
    return encrypter
  }
}
