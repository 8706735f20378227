import { lightRandomBytes } from '../identity/light-mac.ts'

/** A UUIDv7 (RFC 9562, 5.7): the time in ms, then 74 random bits. The package that makes them loads node:crypto. */
export const newRunId = (nowMs: number): string => {
  const bytes = Buffer.from(lightRandomBytes(16))
  bytes.writeUIntBE(nowMs, 0, 6)
  bytes[6] = 0x70 | (bytes[6]! & 0x0f)
  bytes[8] = 0x80 | (bytes[8]! & 0x3f)
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5')
}
