import { chacha20poly1305 } from '@noble/ciphers/chacha.js'
import { ml_dsa65 } from '@noble/post-quantum/ml-dsa.js'
import { ml_kem768 } from '@noble/post-quantum/ml-kem.js'
import { AEAD_TAG_BYTES } from '../protocol/limits/wire.ts'
import { type OpaqueSecret, guarded } from './primitives-interface.ts'

const opaque = <Kind extends 'dsa' | 'kem' | 'aead'>(key: Uint8Array): OpaqueSecret<Kind> => key as unknown as OpaqueSecret<Kind>
const transparent = (secret: OpaqueSecret<'dsa' | 'kem' | 'aead'>): Uint8Array => secret as unknown as Uint8Array

/** The library accepts only plain byte arrays. A Buffer is one only by inheritance. */
const plain = (bytes: Uint8Array): Uint8Array => new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.length)

/** The same primitives in JavaScript, for runtimes without them. */
export const noblePrimitives = guarded({
  name: 'noble',

  dsaKeygen(seed) {
    const { publicKey, secretKey } = ml_dsa65.keygen(plain(seed))
    return { publicKey, secret: opaque(secretKey) }
  },

  dsaSign: async (secret, message) => ml_dsa65.sign(plain(message), transparent(secret)),

  dsaVerify: (publicKey, message, signature) => ml_dsa65.verify(plain(signature), plain(message), plain(publicKey)),

  kemKeygen(seed) {
    const { publicKey, secretKey } = ml_kem768.keygen(seed && plain(seed))
    return { publicKey, secret: opaque(secretKey) }
  },

  kemEncapsulate(publicKey) {
    const { cipherText, sharedSecret } = ml_kem768.encapsulate(plain(publicKey))
    return { ciphertext: cipherText, sharedSecret }
  },

  kemDecapsulate: (secret, ciphertext) => ml_kem768.decapsulate(plain(ciphertext), transparent(secret)),

  aeadKey: (bytes) => opaque(Uint8Array.from(bytes)),

  aeadSeal: (key, nonce, plaintext) => [chacha20poly1305(transparent(key), plain(nonce)).encrypt(plain(Buffer.concat(plaintext)))],

  aeadOpen(key, nonce, sealed) {
    if (sealed.length < AEAD_TAG_BYTES) return null
    const cipher = chacha20poly1305(transparent(key), plain(nonce))
    try {
      return cipher.decrypt(plain(sealed))
    } catch {
      return null
    }
  },
})
