import { AppError } from '../base/errors.ts'
import { AGENT_PUBLIC_KEY_BYTES, AGENT_SIGNATURE_BYTES, KEM_CIPHERTEXT_BYTES, KEM_PUBLIC_KEY_BYTES } from '../protocol/limits/wire.ts'

declare const secretOf: unique symbol

/** A private key in the form of its implementation. It is never serialised. Key files contain seeds. */
export interface OpaqueSecret<Kind extends 'dsa' | 'kem' | 'aead'> {
  readonly [secretOf]: Kind
}

export interface KeyPair<Kind extends 'dsa' | 'kem'> {
  readonly publicKey: Uint8Array
  readonly secret: OpaqueSecret<Kind>
}

/**
 * Primitives that not all runtimes have. They are ML-DSA-65 (FIPS 204, pure, empty context), ML-KEM-768 (FIPS 203) and ChaCha20-Poly1305
 * (RFC 8439). They never store or change the given bytes.
 */
export interface Primitives {
  readonly name: 'native' | 'noble'
  /** The key pair of a 32-byte seed (FIPS 204, ξ). */
  dsaKeygen(seed: Uint8Array): KeyPair<'dsa'>
  /** Hedged signature of 3309 bytes. The native implementation works off the event loop. noble works on it for about 5 ms. */
  dsaSign(secret: OpaqueSecret<'dsa'>, message: Uint8Array): Promise<Uint8Array>
  /** False for anything but a valid signature. Never throws. */
  dsaVerify(publicKey: Uint8Array, message: Uint8Array, signature: Uint8Array): boolean
  /** A new key pair, or that of a 64-byte seed (FIPS 203, d ‖ z). */
  kemKeygen(seed?: Uint8Array): KeyPair<'kem'>
  /** Throws `malformed` for a public key that FIPS 203 §7.2 refuses. */
  kemEncapsulate(publicKey: Uint8Array): { ciphertext: Uint8Array; sharedSecret: Uint8Array }
  /** Throws `malformed` for a wrong length. A wrong ciphertext gives a random secret (implicit rejection). */
  kemDecapsulate(secret: OpaqueSecret<'kem'>, ciphertext: Uint8Array): Uint8Array
  /** The key object of 32 bytes. */
  aeadKey(bytes: Uint8Array): OpaqueSecret<'aead'>
  /**
   * Ciphertext of the concatenated parts, and the tag as the last 16 bytes. The result is in parts too, which the caller concatenates.
   * `nonce` has 12 bytes and must never repeat under one key.
   */
  aeadSeal(key: OpaqueSecret<'aead'>, nonce: Uint8Array, plaintext: readonly Uint8Array[]): Uint8Array[]
  /** Null if the tag is wrong. */
  aeadOpen(key: OpaqueSecret<'aead'>, nonce: Uint8Array, sealed: Uint8Array): Uint8Array | null
}

/** Checks the lengths of keys, signatures and ciphertexts before calling an implementation, and turns its errors into `malformed`. */
export const guarded = (raw: Primitives): Primitives => ({
  ...raw,
  dsaVerify: (publicKey, message, signature) =>
    publicKey.length === AGENT_PUBLIC_KEY_BYTES &&
    signature.length === AGENT_SIGNATURE_BYTES &&
    raw.dsaVerify(publicKey, message, signature),
  kemEncapsulate(publicKey) {
    if (publicKey.length !== KEM_PUBLIC_KEY_BYTES) throw new AppError('malformed', 'a KEM public key has the wrong length')
    try {
      return raw.kemEncapsulate(publicKey)
    } catch (error) {
      throw new AppError('malformed', 'not a KEM public key', { cause: error })
    }
  },
  kemDecapsulate(secret, ciphertext) {
    if (ciphertext.length !== KEM_CIPHERTEXT_BYTES) throw new AppError('malformed', 'a KEM ciphertext has the wrong length')
    return raw.kemDecapsulate(secret, ciphertext)
  },
})
