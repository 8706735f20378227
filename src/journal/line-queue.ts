import type { PreparedLine } from './line.ts'

/** Lines that wait for the disk; beyond this it does not keep up and runs are denied. */
export const MAX_JOURNAL_QUEUE_BYTES = 16 * 1024 * 1024
/** One write: larger batches gain nothing and make a torn one worse. */
const MAX_JOURNAL_BATCH_BYTES = 1024 * 1024

export interface WaitingLine {
  readonly line: PreparedLine
  readonly size: number
  /** Written below the floor of free space, too. */
  readonly belowFloor: boolean
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** Lines that wait for the disk, in their order and bounded in bytes. */
export class LineQueue {
  #lines: WaitingLine[] = []
  #bytes = 0

  get isEmpty(): boolean {
    return this.#lines.length === 0
  }

  hasRoom(size: number): boolean {
    return this.#bytes + size <= MAX_JOURNAL_QUEUE_BYTES
  }

  push(line: WaitingLine): void {
    this.#bytes += line.size
    this.#lines.push(line)
  }

  /** As many as go into one write. */
  takeBatch(): WaitingLine[] {
    let bytes = 0
    let count = 0
    for (const { size } of this.#lines) {
      if (count > 0 && bytes + size > MAX_JOURNAL_BATCH_BYTES) break
      bytes += size
      count += 1
    }
    this.#bytes -= bytes
    return this.#lines.splice(0, count)
  }
}
