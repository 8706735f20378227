import {
  type Hash,
  type KeyObject,
  createHash,
  createHmac,
  createSecretKey,
  hkdfSync,
  randomBytes as systemRandomBytes,
  timingSafeEqual,
} from 'node:crypto'

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

const imported = new WeakMap<Uint8Array, KeyObject>()

/**
 * The same key as the runtime's own object, for those who hand over the bytes of one key again and again:
 * the runtime takes 20 µs to look at bytes and one to look at an object. The bytes must not change.
 */
export const secretKeyOf = (bytes: Uint8Array): KeyObject => {
  const known = imported.get(bytes)
  if (known !== undefined) return known
  const key = createSecretKey(bytes)
  imported.set(bytes, key)
  return key
}

/** HKDF-SHA-256 (RFC 5869), extract and expand; `length` in bytes. */
export const hkdf = (secret: Uint8Array, salt: Uint8Array, info: Uint8Array, length: number): Uint8Array =>
  new Uint8Array(hkdfSync('sha256', secretKeyOf(secret), salt, info, length))

/** Compares in constant time; different lengths are unequal. */
export const equalBytes = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && timingSafeEqual(a, b)

export const randomBytes = (length: number): Uint8Array => new Uint8Array(systemRandomBytes(length))
