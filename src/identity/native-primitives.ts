import {
  type KeyObject,
  createCipheriv,
  createDecipheriv,
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  decapsulate,
  encapsulate,
  generateKeyPairSync,
  sign,
  verify,
} from 'node:crypto'
import { BoundedMap } from '../base/bounded-collections.ts'
import { fromHex } from '../protocol/ids.ts'
import { AEAD_TAG_BYTES } from '../protocol/limits/wire.ts'
import { type OpaqueSecret, guarded } from './primitives-interface.ts'

/** Imported public keys of agents, 9 KB each. Those of a fleet of a thousand fit, whose members a fan-out verifies in turn. */
export const MAX_PUBLIC_KEYS = 2_048

// DER before the raw bytes, as SubjectPublicKeyInfo, and as PKCS #8 with a seed only (RFC 9881, RFC 9935).
const DSA_SPKI = fromHex('308207b2300b0609608648016503040312038207a100')
const DSA_PKCS8 = fromHex('3034020100300b060960864801650304031204228020')
const KEM_SPKI = fromHex('308204b2300b0609608648016503040402038204a100')
const KEM_PKCS8 = fromHex('3054020100300b060960864801650304040204428040')

const CIPHER = 'chacha20-poly1305'
const TAG = { authTagLength: AEAD_TAG_BYTES }

const privateKey = (prefix: Uint8Array, seed: Uint8Array): KeyObject =>
  createPrivateKey({ key: Buffer.concat([prefix, seed]), format: 'der', type: 'pkcs8' })

/** Imported public keys, the last used one last. Importing a key costs a quarter of verifying a signature. */
const publicKeys = new BoundedMap<string, KeyObject>({ max: MAX_PUBLIC_KEYS })

const dsaPublicKey = (raw: Uint8Array): KeyObject => {
  const name = Buffer.from(raw).toString('latin1')
  const key = publicKeys.get(name) ?? publicKey(DSA_SPKI, raw)
  publicKeys.set(name, key)
  return key
}

const publicKey = (prefix: Uint8Array, raw: Uint8Array): KeyObject =>
  createPublicKey({ key: Buffer.concat([prefix, raw]), format: 'der', type: 'spki' })

const rawPublicKey = (prefix: Uint8Array, key: KeyObject): Uint8Array =>
  new Uint8Array(key.export({ format: 'der', type: 'spki' }).subarray(prefix.length))

const opaque = <Kind extends 'dsa' | 'kem' | 'aead'>(key: KeyObject): OpaqueSecret<Kind> => key as unknown as OpaqueSecret<Kind>
const transparent = (secret: OpaqueSecret<'dsa' | 'kem' | 'aead'>): KeyObject => secret as unknown as KeyObject

/** OpenSSL through node:crypto, see `hasNativePrimitives`. */
export const nativePrimitives = guarded({
  name: 'native',

  dsaKeygen(seed) {
    const secret = privateKey(DSA_PKCS8, seed)
    return { publicKey: rawPublicKey(DSA_SPKI, createPublicKey(secret)), secret: opaque(secret) }
  },

  dsaSign: (secret, message) =>
    new Promise((resolve, reject) => {
      // With a callback, a thread of the pool makes the signature.
      sign(null, message, transparent(secret), (error, signature) => (error ? reject(error) : resolve(signature)))
    }),

  dsaVerify: (key, message, signature) => verify(null, message, dsaPublicKey(key), signature),

  kemKeygen(seed) {
    const pair = seed ? fromSeed(seed) : generateKeyPairSync('ml-kem-768')
    return { publicKey: rawPublicKey(KEM_SPKI, pair.publicKey), secret: opaque(pair.privateKey) }
  },

  kemEncapsulate(key) {
    const { ciphertext, sharedKey } = encapsulate(publicKey(KEM_SPKI, key))
    return { ciphertext, sharedSecret: sharedKey }
  },

  kemDecapsulate: (secret, ciphertext) => decapsulate(transparent(secret), ciphertext),

  // Passing the bytes of a key costs 9 µs for each use, which a key object saves.
  aeadKey: (bytes) => opaque(createSecretKey(bytes)),

  aeadSeal(key, nonce, plaintext) {
    const cipher = createCipheriv(CIPHER, transparent(key), nonce, TAG)
    const sealed = plaintext.map((part) => cipher.update(part))
    // A stream cipher does not buffer, so `final` only makes the tag.
    cipher.final()
    return [...sealed, cipher.getAuthTag()]
  },

  aeadOpen(key, nonce, sealed) {
    const length = sealed.length - AEAD_TAG_BYTES
    if (length < 0) return null
    const decipher = createDecipheriv(CIPHER, transparent(key), nonce, TAG).setAuthTag(sealed.subarray(length))
    const plaintext = decipher.update(sealed.subarray(0, length))
    try {
      // Likewise, `final` only checks the tag.
      decipher.final()
    } catch {
      return null
    }
    return plaintext
  },
})

const fromSeed = (seed: Uint8Array): { publicKey: KeyObject; privateKey: KeyObject } => {
  const secret = privateKey(KEM_PKCS8, seed)
  return { publicKey: createPublicKey(secret), privateKey: secret }
}

/** True if the runtime has the post-quantum algorithms, as Node 24.7 with OpenSSL 3.5 and later have. */
export const hasNativePrimitives = (): boolean => {
  if (typeof encapsulate !== 'function') return false
  try {
    privateKey(DSA_PKCS8, new Uint8Array(32))
    privateKey(KEM_PKCS8, new Uint8Array(64))
    return true
  } catch {
    return false
  }
}
