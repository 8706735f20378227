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

/** SHA-256 of the concatenated parts. The caller ensures that the parts cannot be split in another way. */
export const sha256 = (...parts: readonly Uint8Array[]): Uint8Array => {
  const hash = createHash('sha256')
  for (const part of parts) hash.update(part)
  return hash.digest()
}

/** SHA-256 of data that arrives in parts. */
export const newSha256 = (): Hash => createHash('sha256')

/** HMAC-SHA-256 (RFC 2104) of the concatenated parts. */
export const hmac = (key: Uint8Array, ...parts: readonly Uint8Array[]): Uint8Array => {
  const mac = createHmac('sha256', key)
  for (const part of parts) mac.update(part)
  return mac.digest()
}

const imported = new WeakMap<Uint8Array, KeyObject>()

/** The key as an object of the runtime, cached, because the runtime needs 20 µs for bytes and 1 µs for it. Do not change the bytes. */
export const secretKeyOf = (bytes: Uint8Array): KeyObject => {
  const known = imported.get(bytes)
  if (known !== undefined) return known
  const key = createSecretKey(bytes)
  imported.set(bytes, key)
  return key
}

/** HKDF-SHA-256 (RFC 5869), extract and expand. `length` is in bytes. */
export const hkdf = (secret: Uint8Array, salt: Uint8Array, info: Uint8Array, length: number): Uint8Array =>
  new Uint8Array(hkdfSync('sha256', secretKeyOf(secret), salt, info, length))

/** Compares in constant time. Different lengths are unequal. */
export const equalBytes = (a: Uint8Array, b: Uint8Array): boolean => a.length === b.length && timingSafeEqual(a, b)

export const randomBytes = (length: number): Uint8Array => new Uint8Array(systemRandomBytes(length))
