import { hmac } from '@noble/hashes/hmac.js'
import { sha256 } from '@noble/hashes/sha2.js'
import { closeSync, openSync, readSync } from 'node:fs'
import { AppError } from '../base/errors.ts'

// Cryptography for the command line before its first request. Loading node:crypto takes a fifth of the runtime's start time.

/** HMAC-SHA-256 (RFC 2104) of the concatenated parts. */
export const lightHmac = (key: Uint8Array, ...parts: readonly Uint8Array[]): Uint8Array => {
  const mac = hmac.create(sha256, key)
  for (const part of parts) mac.update(part)
  return mac.digest()
}

/** Bytes from the system's generator, random(4). */
export const lightRandomBytes = (length: number): Uint8Array => {
  const bytes = new Uint8Array(length)
  const fd = openSync('/dev/urandom', 'r')
  try {
    for (let at = 0; at < length;) {
      const count = readSync(fd, bytes, at, length - at, null)
      if (count === 0) throw new AppError('internal', '/dev/urandom has no bytes: it is not the generator of the system')
      at += count
    }
  } finally {
    closeSync(fd)
  }
  return bytes
}
