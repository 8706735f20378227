import { constants } from 'node:fs'
import { open } from 'node:fs/promises'
import { dirname } from 'node:path'
import { AppError, type ErrorCode, errnoOf, errorText } from './errors.ts'
import { shellWord } from './shell-word.ts'

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
    const info = await file.stat()
    // To read a directory is an error of its own.
    if (!pipes && !info.isFile() && !info.isDirectory()) throw new Error('is no regular file')
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

const CAUSES: Readonly<Record<string, string>> = {
  ENOENT: 'there is no such file',
  ENOTDIR: 'a part of its path is no directory',
  EACCES: 'this user may not read it, or may not enter a directory of its path',
  EISDIR: 'is a directory: name a file',
}

/** Says that a file which a user named cannot be read, why, and what shows it. `name`: the file with the option that it is of. */
export const unreadable = (code: ErrorCode, path: string, error: unknown, name = path): AppError => {
  const errno = errnoOf(error) ?? ''
  const [cause, shown] = [CAUSES[errno], errno === 'ENOENT' ? dirname(path) : path]
  return new AppError(code, `${name}: ${cause === undefined ? errorText(error) : `${cause} (${errno})`}`, {
    cause: error,
    data: { file: path, ...(cause !== undefined && { next: `Try: ls -ld ${shellWord(shown)}` }) },
  })
}
