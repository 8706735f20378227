import { type ICryptoInterface, noise } from '@chainsafe/libp2p-noise'
import { defaultCrypto } from '@chainsafe/libp2p-noise/crypto'
import { AppError } from '../../base/errors.ts'
import { secretKeyOf } from '../../identity/hash.ts'
import { AEAD_TAG_BYTES } from '../../protocol/limits/wire.ts'
import { holdWrites } from './write-coalescing.ts'

/** From here on Noise uses the runtime's cipher and not its own; it does so from 1,200 bytes. */
export const LARGE_MESSAGE = 2 * 1024

/** Noise passes large messages and the key's bytes to node:crypto, which takes the key as an object too. */
const keyFor = (text: { readonly byteLength: number }, key: Uint8Array): Uint8Array =>
  text.byteLength < LARGE_MESSAGE ? key : (secretKeyOf(key) as unknown as Uint8Array)

/** libp2p's own, except that the key of a connection is imported once and not with every large message. */
const crypto: ICryptoInterface = {
  ...defaultCrypto,
  chaCha20Poly1305Encrypt: (text, nonce, ad, key) => defaultCrypto.chaCha20Poly1305Encrypt(text, nonce, ad, keyFor(text, key)),
  chaCha20Poly1305Decrypt: (text, nonce, ad, key, target) =>
    defaultCrypto.chaCha20Poly1305Decrypt(text, nonce, ad, keyFor(text, key), target),
}

/** What an encrypted connection has beside its interface. */
type Decrypting = { decrypt(message: Message): unknown; readonly decoder: { lengthDecoder: (bytes: Message) => number } }
type Message = Uint8Array | { readonly length: number; subarray(): Uint8Array }

/** Before each message, its length. */
const LENGTH_BYTES = 2
/** Says that the next message has not begun, which is so after all that came at once: the same each time, since to write down where an error was made takes longer than to decrypt. */
const NOT_YET = new RangeError('the length of the next message is not there yet')

const isDecrypting = (connection: object): connection is Decrypting => 'decrypt' in connection && 'decoder' in connection

/**
 * A large message comes as a list of pieces. Noise would copy them into a list of its own and hand on the plaintext as
 * pieces, which are copied once more; joined here, they are copied once. A message without content ends the connection:
 * it never reaches the muxer, so no meter would count it.
 */
const guarded = <Secured extends { connection: object }>(secured: Secured): Secured => {
  const { connection } = secured
  if (!isDecrypting(connection)) throw new TypeError('the encrypted connection has not the members that we rely on')
  const decrypt = connection.decrypt.bind(connection)
  connection.decrypt = (message) => decrypt(message instanceof Uint8Array ? message : message.subarray())
  const { decoder } = connection
  const { lengthDecoder } = decoder
  decoder.lengthDecoder = (bytes) => {
    if (bytes.length < LENGTH_BYTES) throw NOT_YET
    const length = lengthDecoder(bytes)
    if (length <= AEAD_TAG_BYTES) throw new AppError('malformed', 'a message of Noise that holds nothing')
    return length
  }
  holdWrites(connection)
  return secured
}

/** Noise's handshake payload agrees on the muxer. Otherwise multistream-select would, which answers any number of proposals before there is a meter. */
const demandMuxer = <Secured extends { streamMuxer?: unknown }>(secured: Secured): Secured => {
  if (secured.streamMuxer === undefined) throw new AppError('peer_rejected', 'no muxer was agreed on with Noise')
  return secured
}

/** libp2p's Noise, with large messages decrypted faster, and without what a peer could repeat unmetered: see `guarded` and `demandMuxer`. */
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
