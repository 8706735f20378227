import type { Clock, Timer } from '../base/clock.ts'
import type { SealEvent } from './chain-events.ts'
import { ChainWriter, type LifeComponents, type LifeInit } from './chains.ts'
import type { JournalEvent } from './events.ts'
import { JournalFile } from './file.ts'
import type { EncodedLine, PreparedLine } from './line.ts'

/** Time after which notes (`started`, warnings) are synced if no other line is. */
export const NOTE_SYNC_MS = 100
/** Time after which written lines are signed. A signature takes 4.5 KiB and a millisecond. */
export const JOURNAL_HEAD_MS = 60_000
/** Interval of checking the disk's free space. */
const FREE_LOOK_MS = 1_000

export interface JournalWriterInit extends LifeInit {
  readonly floors: number
  /** A sync or a signature is due without a waiting line. Call `doDue`. */
  onDue(): void
  readonly onWritten: ((line: Uint8Array) => void) | null
}

/** Events without an effect that waits for them. They are synced with the next other line, or after NOTE_SYNC_MS. */
const NOTES: ReadonlySet<string> = new Set<JournalEvent['event']>(['started', 'warning', 'session', 'file_read'])

const FULL = 'no space left on the disk'

/** Writes one chain to disk in synced and signed batches, one call at a time. A call throws if the disk fails, and the next one reopens. */
export class JournalWriter {
  readonly #clock: Clock
  readonly #file: JournalFile
  readonly #life: ChainWriter
  readonly #onDue: () => void
  readonly #onWritten: ((line: Uint8Array) => void) | null
  readonly #due = new Set<'sync' | 'head'>()
  #syncTimer: Timer | null = null
  #headTimer: Timer | null = null
  /** `JournalFile.files` at the last line that stated the signer. */
  #introduced = 0
  #low: Error | null = null
  /** Space above the floor at the last check, minus bytes written since. */
  #spare = 0
  #lookedAt = -Infinity
  #closed = false

  constructor(components: LifeComponents, init: JournalWriterInit) {
    const { path, policySha256, floors } = init
    this.#clock = components.clock
    this.#file = new JournalFile({ path, floors })
    this.#life = new ChainWriter(components, { path, policySha256 })
    this.#onDue = init.onDue
    this.#onWritten = init.onWritten
  }

  get path(): string {
    return this.#file.path
  }

  get isDue(): boolean {
    return this.#due.size > 0
  }

  /** Why there is too little space for all lines, or null if there is enough. */
  get low(): Error | null {
    return this.#low
  }

  /** Bytes until the floor, below which only ends may be written. */
  get spare(): number {
    return this.#spare
  }

  /** Checks whether a line could be written, without writing one. */
  async look(): Promise<void> {
    await this.#orClose(async () => {
      await this.#file.ready()
      await this.#lookAtRoom(0)
    })
  }

  /**
   * Call this before choosing a batch. Opens the file and sets `low` and `spare`. If there was space for this many bytes, the disk is
   * checked once a second.
   */
  async ready(bytes: number): Promise<void> {
    await this.#orClose(async () => {
      await this.#file.ready()
      const isOld = this.#clock.monotonic() - this.#lookedAt >= FREE_LOOK_MS
      if (this.#low !== null || isOld || this.#spare < bytes) await this.#lookAtRoom(bytes)
    })
  }

  /** Returns the number of lines written. If one has an effect that waits for it, all are synced. A lower number means a full disk. */
  async write(batch: readonly PreparedLine[]): Promise<number> {
    return this.#orClose(async () => {
      const opening = await this.#life.opening()
      const lines = this.#life.chain.encode([...opening, ...batch])
      const whole = await this.#append(lines)
      const written = Math.max(0, whole - opening.length)
      if (opening.length > 0 || batch.slice(0, written).some(({ event }) => !NOTES.has(event))) await this.#sync()
      else if (written > 0) this.#syncTimer ??= this.#timer('sync', NOTE_SYNC_MS)
      // `began` states the signer, and the lines before it are signed at once.
      if (opening.length > 0 && whole > 0) this.#started()
      else if (written > 0 && this.#life.signs) this.#headTimer ??= this.#timer('head', JOURNAL_HEAD_MS)
      if (whole < lines.length) await this.#file.close()
      return written
    })
  }

  /** Syncs notes and signs written lines. */
  async doDue(): Promise<void> {
    if (this.#due.delete('sync'))
      await this.#orClose(async () => {
        await this.#file.ready()
        await this.#sync()
      })
    if (this.#due.delete('head')) await this.#seal('head')
  }

  /** Writes the end of a begun chain, and closes. */
  async close(): Promise<void> {
    this.#closed = true
    for (const timer of [this.#syncTimer, this.#headTimer]) timer?.cancel()
    try {
      if (!this.#life.chain.isNew) await this.#seal('stopped')
    } finally {
      await this.#file.close()
    }
  }

  /** Other lines wait some milliseconds for the signature. */
  async #seal(event: SealEvent['event']): Promise<void> {
    await this.#orClose(async () => {
      await this.#file.ready()
      const { files } = this.#file
      const line = await this.#life.seal(event, { introduce: files !== this.#introduced })
      if ((await this.#append([line])) === 0) throw new Error(FULL)
      await this.#sync()
      this.#introduced = files
    })
  }

  #started(): void {
    this.#introduced = this.#file.files
    if (this.#life.signs) this.#due.add('head')
  }

  #timer(what: 'sync' | 'head', ms: number): Timer | null {
    if (this.#closed) return null
    const fire = (): void => {
      if (what === 'sync') this.#syncTimer = null
      else this.#headTimer = null
      this.#due.add(what)
      this.#onDue()
    }
    return this.#clock.setTimeout(fire, ms, { unref: true })
  }

  /** Syncs the file that was appended to, even if it was renamed. This includes earlier notes. */
  async #sync(): Promise<void> {
    this.#syncTimer?.cancel()
    this.#syncTimer = null
    await this.#file.sync()
  }

  async #lookAtRoom(bytes: number): Promise<void> {
    this.#lookedAt = this.#clock.monotonic()
    const { free, spare } = await this.#file.room()
    this.#spare = spare
    this.#low = spare >= bytes ? null : new Error(free === 0 ? FULL : 'too little space left on the disk')
  }

  /** How many whole lines went in. The chain goes on behind these. */
  async #append(lines: readonly EncodedLine[]): Promise<number> {
    if (lines.length === 0) return 0
    const feed = Buffer.from('\n')
    let room = await this.#file.append(Buffer.concat(lines.flatMap(({ bytes }) => [bytes, feed])))
    this.#spare -= room
    let whole = 0
    for (const { bytes } of lines) {
      room -= bytes.length + 1
      if (room < 0) break
      whole += 1
    }
    this.#life.chain.commit(lines.slice(0, whole))
    if (this.#onWritten !== null) for (const { bytes } of lines.slice(0, whole)) this.#onWritten(bytes)
    return whole
  }

  /** Closes the file if `work` fails. Its lines may be in the file unsynced. They keep their place in the chain and count as unwritten. */
  async #orClose<T>(work: () => Promise<T>): Promise<T> {
    try {
      return await work()
    } catch (error) {
      await this.#file.close().catch(() => {})
      throw error
    }
  }
}

/** Limit on lines that wait for the disk. Above it, runs are denied. */
export const MAX_JOURNAL_QUEUE_BYTES = 16 * 1024 * 1024
/** Size of one write. Larger batches would not be faster, and would tear more lines. */
const MAX_JOURNAL_BATCH_BYTES = 1024 * 1024

export interface QueuedLine {
  readonly line: PreparedLine
  readonly size: number
  /** True if the line is also written below the floor of free space. */
  readonly belowFloor: boolean
  readonly resolve: () => void
  readonly reject: (error: unknown) => void
}

/** Lines that wait for the disk, in their order and bounded in bytes. */
export class LineQueue {
  #lines: QueuedLine[] = []
  #bytes = 0

  get isEmpty(): boolean {
    return this.#lines.length === 0
  }

  hasRoom(size: number): boolean {
    return this.#bytes + size <= MAX_JOURNAL_QUEUE_BYTES
  }

  push(line: QueuedLine): void {
    this.#bytes += line.size
    this.#lines.push(line)
  }

  /** As many as go into one write. */
  takeBatch(): QueuedLine[] {
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
