import { closeSync, openSync, readSync } from 'node:fs'

import { hmac } from '@noble/hashes/hmac.js'
import { sha256 } from '@noble/hashes/sha2.js'

// For the command line alone: to load node:crypto takes it longer than all that it would do with it.

/** HMAC-SHA-256 (RFC 2104) of the parts one after the other, 32 bytes. */
export const lightHmac = (key: Uint8Array, ...parts: readonly Uint8Array[]): Uint8Array => {
  const mac = hmac.create(sha256, key)
  for (const part of parts) mac.update(part)
  return mac.digest()
}

/** Bytes of the system's generator. Throws where it gives none. */
export const lightRandomBytes = (length: number): Uint8Array => {
  const bytes = new Uint8Array(length)
  const fd = openSync('/dev/urandom', 'r')
  try {
    if (readSync(fd, bytes) !== length) throw new Error('/dev/urandom gave too few bytes')
  } finally {
    closeSync(fd)
  }
  return bytes
}
