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

/** libp2p's Noise; the key of a connection is imported once and not with every large message. */
export const noiseEncrypter = (): ReturnType<typeof noise> => {
  const create = noise()
  return (components) => {
    const encrypter = create(components)
    if (!hasCiphers(encrypter)) throw new TypeError('the encrypter has no ciphers that could be given a key')
    const { crypto } = encrypter
    crypto.encrypt = withKeyObject(crypto.encrypt)
    crypto.decrypt = withKeyObject(crypto.decrypt)
    return encrypter
  }
}
