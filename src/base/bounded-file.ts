import { constants } from 'node:fs'
import { open } from 'node:fs/promises'

const CHUNK = 64 * 1024

export interface BoundedRead {
  /** The most bytes. */
  readonly max: number
  /** It may be a pipe, whose writer is waited for: for a person's command, and for nothing that goes on. */
  readonly pipes?: boolean
}

/** All of a regular file, through the one descriptor that was looked at. Throws what is wrong with it. */
export const readBounded = async (path: string, { max, pipes = false }: BoundedRead): Promise<Buffer> => {
  const file = await open(path, constants.O_RDONLY | constants.O_NOCTTY | (pipes ? 0 : constants.O_NONBLOCK))
  try {
    if (!pipes && !(await file.stat()).isFile()) throw new Error('is no regular file')
    const parts: Buffer[] = []
    for (let bytes = 0; ;) {
      const { bytesRead, buffer } = await file.read(Buffer.alloc(CHUNK), 0, CHUNK, null)
      if (bytesRead === 0) return Buffer.concat(parts)
      bytes += bytesRead
      if (bytes > max) throw new Error(`has more than ${max} bytes`)
      parts.push(buffer.subarray(0, bytesRead))
    }
  } finally {
    await file.close()
  }
}
