import { createHash, createHmac, hkdfSync, randomBytes as systemRandomBytes, timingSafeEqual, type Hash } from 'node:crypto'

import { secretKeyOf } from './secret-key.ts'

/** SHA-256 of the parts one after the other, 32 bytes. The caller sees to it that the parts cannot be cut differently. */
export const sha256 = (...parts: readonly Uint8Array[]): Uint8Array => {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part)
  return hash.digest()
}

/** SHA-256 of what is not there all at once. */
export const newSha256 = (): Hash => createHash('sha256')

/** HMAC-SHA-256 (RFC 2104) of the parts one after the other, 32 bytes. */
export const hmac = (key: Uint8Array, ...parts: readonly Uint8Array[]): Uint8Array => {
  const mac = createHmac('sha256', key)
  for (const part of parts) mac.update(part)
  return mac.digest()
}

/** HKDF-SHA-256 (RFC 5869), extract and expand; `length` in bytes. */
export const hkdf = (secret: Uint8Array, salt: Uint8Array, info: Uint8Array, length: number): Uint8Array =>
  new Uint8Array(hkdfSync('sha256', secretKeyOf(secret), salt, info, length))

/** Compares in constant time; different lengths are unequal. */
export const equalBytes = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && timingSafeEqual(a, b)

export const randomBytes = (length: number): Uint8Array => new Uint8Array(systemRandomBytes(length))
