import { constants } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'
import type { Found } from './open-file.ts'
import { tooMuch } from './refusals.ts'

/** A text that is edited or patched, before and after: it is held in memory as a whole. */
export const MAX_EDIT_BYTES = 16 * 1024 * 1024

/** What is read at once of a file that does not say how long it is. */
const CHUNK_BYTES = 64 * 1024

/**
 * Reads on from a position to the end of the file, at most `limit` bytes. `expected`, the bytes that the file
 * says are there, makes it one read; files of /proc say 0 and have content.
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
    // As many as it said, and no more came: that was the end.
    if (got === expected && bytesRead < chunk.length) break
    size = CHUNK_BYTES
  }
  return chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
}

/** The whole of a regular file that is to be changed. Throws `resource_limit` when it is longer than the limit, whose name is given. */
export const readWhole = async ({ held, info }: Found, name: string, max: number): Promise<Buffer> => {
  const size = Number(info.size)
  if (size > max) throw tooMuch(name, size, max)
  await using file = await held.open(constants.O_RDONLY)
  const data = await readFrom(file, 0, max + 1, size)
  if (data.length > max) throw tooMuch(name, data.length, max)
  return data
}
