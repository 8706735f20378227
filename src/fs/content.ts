import { createHash } from 'node:crypto'
import { constants } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import type { TimeSlice } from '../base/time-slices.ts'
import type { Found } from './open-file.ts'
import { systemError, tooMuch } from './refusals.ts'

/** Size of an edited or patched text, before and after: it is in memory as a whole. */
export const MAX_EDIT_BYTES = 16 * 1024 * 1024

/** Read size if the file's length is unknown. */
const CHUNK_BYTES = 64 * 1024

/**
 * Reads from `offset` to the end, at most `limit` bytes. With the right `expected` size, one read suffices; files of /proc report 0 and
 * have content.
 */
export const readFrom = async (file: FileHandle, offset: number, limit: number, expected: number): Promise<Buffer> => {
  const chunks: Buffer[] = []
  let got = 0
  let size = expected > 0 ? expected + 1 : CHUNK_BYTES
  while (got < limit) {
    const chunk = Buffer.allocUnsafeSlow(Math.min(size, limit - got))
    const { bytesRead } = await file.read(chunk, 0, chunk.length, offset + got)
    if (bytesRead === 0) break
    chunks.push(chunk.subarray(0, bytesRead))
    got += bytesRead
    // The expected bytes came and no more: this is the end.
    if (got === expected && bytesRead < chunk.length) break
    size = CHUNK_BYTES
  }
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
}

/** Reads a whole regular file that is to be changed. Throws `resource_limit` with this limit's name if it is longer. */
export const readWhole = async ({ handle, info }: Found, name: string, max: number): Promise<Buffer> => {
  const size = Number(info.size)
  if (size > max) throw tooMuch(name, size, max)
  await using file = await handle.open(constants.O_RDONLY)
  const data = await readFrom(file, 0, max + 1, size)
  if (data.length > max) throw tooMuch(name, data.length, max)
  return data
}

/** Bytes read at once. */
const HASH_BYTES = 512 * 1024

/** SHA-256 of the first bytes of a file, as hex. Throws ESTALE if it has fewer, and the signal's reason. */
export const hashOf = async (file: FileHandle, size: number, share: TimeSlice): Promise<string> => {
  const digest = createHash('sha256')
  const buffer = Buffer.allocUnsafeSlow(HASH_BYTES)
  for (let at = 0; at < size;) {
    share.signal.throwIfAborted()
    if (share.shouldYield) await share.yieldTurn()
    const { bytesRead } = await file.read(buffer, 0, Math.min(HASH_BYTES, size - at), at)
    if (bytesRead === 0) throw systemError('ESTALE')
    at += bytesRead
    digest.update(buffer.subarray(0, bytesRead))
  }
  return digest.digest('hex')
}
