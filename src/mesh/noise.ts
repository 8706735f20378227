import { noise } from '@chainsafe/libp2p-noise'

import { AppError } from '../base/errors.ts'
import { secretKeyOf } from '../identity/secret-key.ts'
import { AEAD_TAG_BYTES, LARGE_MESSAGE } from '../protocol/limits.ts'

type Encrypter = ReturnType<ReturnType<typeof noise>>

/** What the encrypter has beside its interface. */
interface Ciphers {
  encrypt: Cipher
  decrypt: Cipher
}
type Cipher = (text: { readonly byteLength: number }, nonce: Uint8Array, ad: Uint8Array, key: Uint8Array, target?: Uint8Array) => unknown

const hasCiphers = (encrypter: Encrypter): encrypter is Encrypter & { readonly crypto: Ciphers } => 'crypto' in encrypter

/** Noise passes large messages and the key's bytes to node:crypto, which takes the key as an object too. */
const withKeyObject =
  (cipher: Cipher): Cipher =>
  (text, nonce, ad, key, target) =>
    cipher(text, nonce, ad, text.byteLength < LARGE_MESSAGE ? key : (secretKeyOf(key) as unknown as Uint8Array), target)

/** What an encrypted connection has beside its interface. */
type Decrypting = { decrypt(message: Message): unknown; readonly decoder: { lengthDecoder: (bytes: Message) => number } }
type Message = Uint8Array | { subarray(): Uint8Array }

const isDecrypting = (connection: object): connection is Decrypting => 'decrypt' in connection && 'decoder' in connection

/**
 * A large message comes in pieces. Noise would copy all of them to have room for the text, which it then does not
 * use, and hand on the text in pieces too, to be copied again; joined once, none of that happens.
 */
const joinPieces = <Secured extends { connection: object }>(secured: Secured): Secured => {
  const { connection } = secured
  if (!isDecrypting(connection)) throw new TypeError('the encrypter has no way in where messages could be joined')
  const decrypt = connection.decrypt.bind(connection)
  connection.decrypt = (message) => decrypt(message instanceof Uint8Array ? message : message.subarray())
  return secured
}

/** A message that holds nothing ends the connection: nobody above would see it, and so no meter would count it. */
const refuseEmpty = <Secured extends { connection: object }>(secured: Secured): Secured => {
  const { connection } = secured
  if (!isDecrypting(connection)) throw new TypeError('the encrypter has no way in where empty messages could be refused')
  const { decoder } = connection
  const { lengthDecoder } = decoder
  decoder.lengthDecoder = (bytes) => {
    const length = lengthDecoder(bytes)
    if (length <= AEAD_TAG_BYTES) throw new AppError('malformed', 'a message of Noise that holds nothing')
    return length
  }
  return secured
}

/** Noise's own messages agree on the muxer. Else multistream-select would, and answer any number of proposals that no meter sees. */
const demandMuxer = <Secured extends { streamMuxer?: unknown }>(secured: Secured): Secured => {
  if (secured.streamMuxer === undefined) throw new AppError('peer_rejected', 'no muxer was agreed on with Noise')
  return secured
}

/** libp2p's Noise; the key of a connection is imported once and not with every large message. */
export const noiseEncrypter = (): ReturnType<typeof noise> => {
  const create = noise()
  return (components) => {
    const encrypter = create(components)
    if (!hasCiphers(encrypter)) throw new TypeError('the encrypter has no ciphers that could be given a key')
    const { crypto } = encrypter
    crypto.encrypt = withKeyObject(crypto.encrypt)
    crypto.decrypt = withKeyObject(crypto.decrypt)
    const inbound = encrypter.secureInbound.bind(encrypter)
    const outbound = encrypter.secureOutbound.bind(encrypter)
    encrypter.secureInbound = async (connection, options) => demandMuxer(refuseEmpty(joinPieces(await inbound(connection, options))))
    encrypter.secureOutbound = async (connection, options) => refuseEmpty(joinPieces(await outbound(connection, options)))
    return encrypter
  }
}
