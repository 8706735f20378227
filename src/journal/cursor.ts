import type { FileHandle } from 'node:fs/promises'
import { LineReader, lastRotated } from './read.ts'
import { startOfLast } from './tail.ts'

export interface JournalCursorInit {
  readonly path: string
  /** Lines of the end of the journal with which the first reading begins. */
  readonly lines: number
  /** Bytes that one reading reads at most. Older ones are skipped. Default: any number. */
  readonly maxBytes?: number
  /** Opens the journal. Throws if it cannot be read. */
  readonly open: (path: string) => Promise<FileHandle>
}

/** Position up to which a file was read. */
interface ReadPosition {
  readonly dev: number
  readonly ino: number
  /** Offset after the last complete line. */
  readonly position: number
}

/** Reads each complete line of a journal once, also after a rotation. Callers read one after the other. */
export class JournalCursor {
  readonly #init: JournalCursorInit
  #place: ReadPosition | null = null
  /** Whether the journal has lines that were not read: older ones, or a part of many new ones. */
  skipped = false

  constructor(init: JournalCursorInit) {
    this.#init = init
  }

  /** Calls `take` for the lines since the last reading. Throws the error of `open`. */
  async read(take: (line: Buffer) => void): Promise<void> {
    const file = await this.#init.open(this.#init.path)
    try {
      const { dev, ino, size } = await file.stat()
      const before = this.#place
      const isSame = before !== null && before.dev === dev && before.ino === ino && before.position <= size
      if (before !== null && !isSame) await this.#readRotated(before, take)
      const from = isSame ? before.position : await this.#begin(file, size)
      this.#place = { dev, ino, position: await this.#readFrom(file, this.#within(from, size), take) }
    } finally {
      await file.close()
    }
  }

  async #begin(file: FileHandle, size: number): Promise<number> {
    const from = await startOfLast(file, size, this.#init.lines, this.#init.maxBytes)
    if (this.#place === null && (from > 0 || (await lastRotated(this.#init.path)) !== null)) this.skipped = true
    return from
  }

  #within(from: number, size: number): number {
    const first = size - (this.#init.maxBytes ?? size)
    if (first > from) this.skipped = true
    return Math.max(first, from)
  }

  /** Reads lines that were written after this position before the file was rotated. */
  async #readRotated({ dev, ino, position }: ReadPosition, take: (line: Buffer) => void): Promise<void> {
    const path = await lastRotated(this.#init.path)
    if (path === null) return
    const file = await this.#init.open(path)
    try {
      const found = await file.stat()
      if (found.dev === dev && found.ino === ino) await this.#readFrom(file, this.#within(position, found.size), take)
    } finally {
      await file.close()
    }
  }

  /** Reads lines after a position. Returns the end of the last complete one. An incomplete line is read the next time. */
  async #readFrom(file: FileHandle, position: number, take: (line: Buffer) => void): Promise<number> {
    const reader = new LineReader(file, position)
    for await (const lines of reader.lines()) for (const line of lines) if (line !== 'too_long') take(line)
    const rest = reader.rest()
    return reader.position - (rest === null || rest === 'too_long' ? 0 : rest.length)
  }
}
