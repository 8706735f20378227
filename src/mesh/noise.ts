import { noise } from '@chainsafe/libp2p-noise'

import { secretKeyOf } from '../identity/secret-key.ts'
import { LARGE_MESSAGE } from '../protocol/limits.ts'

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
type Decrypting = { decrypt(message: Message): unknown }
type Message = Uint8Array | { subarray(): Uint8Array }

const isDecrypting = (connection: object): connection is Decrypting => 'decrypt' in connection && typeof connection.decrypt === 'function'

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
    encrypter.secureInbound = async (connection, options) => joinPieces(await inbound(connection, options))
    encrypter.secureOutbound = async (connection, options) => joinPieces(await outbound(connection, options))
    return encrypter
  }
}
