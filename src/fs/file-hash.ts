import { createHash } from 'node:crypto'
import type { FileHandle } from 'node:fs/promises'
import type { TimeSlice } from '../base/time-slices.ts'
import { systemError } from './refusals.ts'

/** Bytes read at once. */
const READ_BYTES = 512 * 1024

/** SHA-256 of the first bytes of a file, as hex. Throws ESTALE if it has fewer, and the signal's reason. */
export const hashOf = async (file: FileHandle, size: number, share: TimeSlice): Promise<string> => {
  const digest = createHash('sha256')
  const buffer = Buffer.allocUnsafeSlow(READ_BYTES)
  for (let at = 0; at < size;) {
    share.signal.throwIfAborted()
    if (share.shouldYield) await share.yieldTurn()
    const { bytesRead } = await file.read(buffer, 0, Math.min(READ_BYTES, size - at), at)
    if (bytesRead === 0) throw systemError('ESTALE')
    at += bytesRead
    digest.update(buffer.subarray(0, bytesRead))
  }
  return digest.digest('hex')
}
