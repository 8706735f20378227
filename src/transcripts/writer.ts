import { join } from 'node:path'
import type { Clock, Timer } from '../base/clock.ts'
import { errorText, isAppError } from '../base/errors.ts'
import { visibleJson } from '../base/visible-text.ts'
import { AppendedFile, freeSpace } from '../journal/file.ts'
import { type EndedCommand, HIDDEN_VALUE, type TranscriptEntry } from '../protocol/console/transcript.ts'
import {
  CUT_ARGV,
  MAX_TRANSCRIPT_FILE,
  MAX_TRANSCRIPT_LINE,
  MAX_WAITING_BYTES,
  MAX_WAITING_ENTRIES,
  TRANSCRIPT_FLOORS,
} from '../protocol/limits/tools.ts'
import { removeOldest } from './browse.ts'
import { filesOf, makeTranscriptsDir, nameAt } from './directory.ts'

/** Limits of entries that wait for an earlier one. */
export interface WaitingBounds {
  readonly count: number
  readonly bytes: number
}

interface Sized {
  readonly bytes: Uint8Array
}

/**
 * Orders ended commands by their start. `end` returns the items that may be written, in order. If too many wait, the earliest unfinished
 * command loses its turn and is written when it ends.
 */
export class ArrivalOrder<T extends Sized> {
  readonly #max: WaitingBounds
  /** Numbers of running commands, the lowest first. */
  readonly #open = new Set<number>()
  readonly #late = new Set<number>()
  readonly #waiting = new Map<number, T>()
  #bytes = 0
  #next = 1

  constructor(max: WaitingBounds) {
    this.#max = max
  }

  get waiting(): readonly T[] {
    return this.#before(Infinity).map(([, item]) => item)
  }

  arrive(): number {
    const place = this.#next++
    this.#open.add(place)
    return place
  }

  /** Records an end. Returns null for no item. Returns the items that may be written now, in order. */
  end(place: number, item: T | null): T[] {
    if (this.#late.delete(place)) return item === null ? [] : [item]
    if (!this.#open.delete(place)) throw new TypeError(`the place ${place} is not open`)
    if (item !== null) {
      this.#waiting.set(place, item)
      this.#bytes += item.bytes.length
    }
    const released = this.#release()
    while (this.#waiting.size > this.#max.count || this.#bytes > this.#max.bytes) {
      this.#makeLate()
      released.push(...this.#release())
    }
    return released
  }

  /** All waiting items in order, when no earlier one will come. */
  takeAll(): T[] {
    while (this.#open.size > 0) this.#makeLate()
    return this.#release()
  }

  #makeLate(): void {
    const [first] = this.#open
    if (first === undefined) return
    this.#open.delete(first)
    this.#late.add(first)
  }

  /** Waiting items with numbers below this one, in order. */
  #before(end: number): [number, T][] {
    return [...this.#waiting].filter(([place]) => place < end).sort(([one], [other]) => one - other)
  }

  #release(): T[] {
    const [first = Infinity] = this.#open
    const free = this.#before(first)
    for (const [place, item] of free) {
      this.#waiting.delete(place)
      this.#bytes -= item.bytes.length
    }
    return free.map(([, item]) => item)
  }
}

const lineOf = (entry: TranscriptEntry): Buffer => Buffer.from(`${visibleJson(JSON.stringify(entry))}\n`)

const cutWords = (words: readonly string[]): string[] => words.slice(0, CUT_ARGV.words).map((word) => word.slice(0, CUT_ARGV.characters))

export type Placing = Pick<TranscriptEntry, 'arrival' | 'missing_before'>

/** Encodes a command as a transcript line, up to the length that readers accept. */
export const encodeEntry = (command: EndedCommand, placing: Placing, { recordEnv }: { readonly recordEnv: boolean }): Buffer => {
  const { whoami, dir, envs, exec, exit, error, startedAt, duration_ms, output, ran_on, descendants_ended } = command
  const started_at = new Date(startedAt).toISOString()
  const hidden = (): Record<string, string> => Object.fromEntries(Object.keys(envs).map((name) => [name, HIDDEN_VALUE]))
  const entry: TranscriptEntry = {
    whoami,
    dir,
    envs: recordEnv ? envs : hidden(),
    exec,
    exit,
    output: output.text,
    ...(error === null ? {} : { error }),
    time: `${started_at.slice(0, 19)}Z`,
    started_at,
    duration_ms: Math.max(0, Math.round(duration_ms)),
    output_bytes: output.bytes,
    output_truncated: output.truncated,
    timing: output.timing,
    ...(ran_on && { ran_on }),
    ...(descendants_ended !== undefined && { descendants_ended }),
    ...placing,
  }
  const line = lineOf(entry)
  if (line.length <= MAX_TRANSCRIPT_LINE) return line
  const cut = { exec: cutWords(exec), exec_truncated: true, envs: {}, output: '', output_truncated: true, timing: [] }
  return lineOf({ ...entry, ...cut, whoami: whoami.slice(0, CUT_ARGV.characters), dir: dir.slice(0, CUT_ARGV.characters) })
}

export const continuing = (line: Buffer, name: string): Buffer =>
  Buffer.concat([line.subarray(0, -2), Buffer.from(`,"continues":${JSON.stringify(name)}}\n`)])

export interface TranscriptWriterInit {
  readonly directory: string
  readonly recordEnv: boolean
  /** Notifies the user that lines are missing, were removed, or continue in another file. */
  readonly say: (text: string) => void
  /** For tests. Default: MAX_TRANSCRIPT_FILE. */
  readonly maxFileBytes?: number
}

/** An ended command to be written. */
interface Line {
  readonly bytes: Buffer
  /** True if it is in the file of waiting entries. */
  isKept: boolean
  readonly settle: (durable: boolean) => void
}

const BATCH_BYTES = 1024 * 1024
/** Delay after a disk error. */
const RETRY_MS = 1_000
/** Number of names tried for a new file. */
const MAX_NAMES = 60

/** Creates the file of a transcript that begins at this time, or at the next second with a free name. */
const createFile = async (directory: string, from: number): Promise<{ readonly name: string; readonly file: AppendedFile }> => {
  for (let at = 0; ; at++) {
    const name = nameAt(from + at * 1_000)
    try {
      return { name, file: await AppendedFile.create(join(directory, filesOf(name).entries)) }
    } catch (error) {
      if (!isAppError(error, 'conflict') || at === MAX_NAMES) throw error
    }
  }
}

/**
 * Writes the transcript of one console, with lines in the order of the commands' starts. An entry that waits for an earlier command is
 * written to a separate file at once, and moves to the transcript when its turn comes. Readers combine both files.
 */
export class TranscriptWriter {
  readonly #clock: Clock
  readonly #init: TranscriptWriterInit
  readonly #order = new ArrivalOrder<Line>({ count: MAX_WAITING_ENTRIES, bytes: MAX_WAITING_BYTES })
  #name: string
  #file: AppendedFile
  #waitingFile: AppendedFile | null = null
  /** Earlier files of waiting entries. Their entries are copied to the present one before they are removed. */
  readonly #oldWaitingFiles: AppendedFile[] = []
  /** Name of the transcript that the next line continues. */
  #continues: string | null = null
  #queue: Line[] = []
  #queueBytes = 0
  #missing = 0
  #failing = false
  #working: Promise<void> | null = null
  #retry: Timer | null = null
  #closed = false

  private constructor(clock: Clock, init: TranscriptWriterInit, name: string, file: AppendedFile) {
    this.#clock = clock
    this.#init = init
    this.#name = name
    this.#file = file
  }

  /**
   * Creates file and directory. Throws `conflict` if all names of the next minute are taken, `loose_permissions` if others could read it.
   */
  static async start({ clock }: { readonly clock: Clock }, init: TranscriptWriterInit): Promise<TranscriptWriter> {
    await makeTranscriptsDir(init.directory)
    const { name, file } = await createFile(init.directory, clock.now())
    const writer = new TranscriptWriter(clock, init, name, file)
    await writer.#removeOldest()
    return writer
  }

  get name(): string {
    return this.#name
  }

  get path(): string {
    return this.#file.path
  }

  /** Registers a start. Returns its number, from 1. Call `end` for each number. */
  arrive(): number {
    return this.#order.arrive()
  }

  /**
   * Registers an end, or null for a command without an entry. Resolves with true when its line is on disk, or with false if the disk
   * refuses it now. Then the line is written later, or counted as missing. Never rejects.
   */
  async end(place: number, command: EndedCommand | null): Promise<boolean> {
    const takes = command !== null && !this.#closed && this.#queueBytes <= MAX_WAITING_BYTES
    if (command !== null && !takes) this.#missing += 1
    if (!takes) {
      this.#enqueue(this.#order.end(place, null))
      return command === null
    }
    const missing = this.#missing
    this.#missing = 0
    const placing = { arrival: place, ...(missing === 0 ? {} : { missing_before: missing }) }
    const bytes = encodeEntry(command, placing, this.#init)
    return new Promise((settle) => this.#enqueue(this.#order.end(place, { bytes, isKept: false, settle })))
  }

  /** Writes all ended commands, without waiting for others, and closes. */
  async close(): Promise<void> {
    if (this.#closed) return
    this.#retry?.cancel()
    this.#retry = null
    this.#enqueue(this.#order.takeAll())
    this.#closed = true
    while (this.#working !== null) await this.#working
    const lost = this.#missing + this.#queue.filter(({ isKept }) => !isKept).length
    if (lost > 0) this.#init.say(`${lost} of its commands are missing in the transcript ${this.path}`)
    await this.#file.close()
    for (const file of this.#oldWaitingFiles) await file.close()
    // Lines that could not be moved are still in it.
    if (this.#queue.length === 0) await this.#waitingFile?.remove()
    else await this.#waitingFile?.close()
  }

  #enqueue(lines: readonly Line[]): void {
    this.#queue.push(...lines)
    for (const { bytes } of lines) this.#queueBytes += bytes.length
    if (this.#working === null && this.#retry === null) this.#working = this.#work()
    else if (this.#failing) for (const line of [...lines, ...this.#order.waiting]) line.settle(false)
  }

  async #work(): Promise<void> {
    // Lines queued in the same turn are written together.
    await Promise.resolve()
    try {
      do {
        await this.#writeQueue()
        await this.#writeWaiting()
      } while (this.#queue.length > 0 || this.#order.waiting.some(({ isKept }) => !isKept))
      if (this.#failing) this.#init.say(`the transcript ${this.path} is written again`)
      this.#failing = false
    } catch (error) {
      this.#failed(error)
    }
    this.#working = null
  }

  #failed(error: unknown): void {
    if (!this.#failing) this.#init.say(`the transcript ${this.path} cannot be written: ${errorText(error)}; commands still run`)
    this.#failing = true
    for (const line of [...this.#queue, ...this.#order.waiting]) line.settle(false)
    if (this.#closed) return
    const again = (): void => {
      this.#retry = null
      this.#working ??= this.#work()
    }
    this.#retry = this.#clock.setTimeout(again, RETRY_MS, { unref: true })
  }

  async #writeQueue(): Promise<void> {
    while (this.#queue.length > 0) {
      let bytes = 0
      const count = this.#queue.findIndex((line) => (bytes += line.bytes.length) > BATCH_BYTES)
      const batch = this.#queue.slice(0, count === -1 ? this.#queue.length : Math.max(1, count))
      await this.#resume()
      const lines = batch.map((line) => line.bytes)
      if (this.#continues !== null) lines[0] = continuing(batch[0]!.bytes, this.#continues)
      await this.#append(this.#file, lines)
      this.#continues = null
      this.#queue.splice(0, batch.length)
      for (const line of batch) {
        this.#queueBytes -= line.bytes.length
        line.settle(true)
      }
    }
  }

  async #writeWaiting(): Promise<void> {
    if (this.#order.waiting.some(({ isKept }) => !isKept)) {
      await this.#resume()
      this.#waitingFile ??= await AppendedFile.create(join(this.#init.directory, filesOf(this.#name).waiting))
      const fresh = this.#order.waiting.filter(({ isKept }) => !isKept)
      await this.#append(
        this.#waitingFile,
        fresh.map(({ bytes }) => bytes),
      )
      for (const line of fresh) {
        line.isKept = true
        line.settle(true)
      }
    }
    // Entries queued by now may be in that file only.
    if (this.#queue.length === 0) for (const file of this.#oldWaitingFiles.splice(0)) await file.remove()
    if (this.#waitingFile === null || this.#waitingFile.size === 0 || this.#queue.length > 0) return
    if (this.#order.waiting.length === 0) await this.#waitingFile.empty()
    // The file also contains moved entries, because there was always another waiting one.
    else if (this.#waitingFile.size > 4 * MAX_WAITING_BYTES) this.#enqueue(this.#order.takeAll())
  }

  /** Throws if the disk has too little space. */
  async #append(file: AppendedFile, lines: readonly Buffer[]): Promise<void> {
    const bytes = Buffer.concat(lines)
    const { spare } = await freeSpace(this.#init.directory, TRANSCRIPT_FLOORS)
    if (spare < bytes.length) throw new Error('too little space left on the disk')
    await file.append(bytes)
  }

  /** Continues in another file if this one is full or removed. */
  async #resume(): Promise<void> {
    const isFull = this.#file.size >= (this.#init.maxFileBytes ?? MAX_TRANSCRIPT_FILE)
    if (this.#file.isThere && !isFull) return
    const [old, oldFile] = [this.#name, this.#file]
    // Followers look for names above this one.
    const after = Date.parse(`${old.slice(0, 10)}T${old.slice(11)}Z`) + 1_000
    const { name, file } = await createFile(this.#init.directory, Math.max(this.#clock.now(), after))
    this.#name = name
    this.#file = file
    // The previous transcript may be empty.
    this.#continues ??= old
    if (this.#waitingFile !== null) this.#oldWaitingFiles.push(this.#waitingFile)
    this.#waitingFile = null
    for (const line of this.#order.waiting) line.isKept = false
    await oldFile.close()
    this.#init.say(`the transcript ${oldFile.path} ${isFull ? 'is full' : 'was removed'}; it continues in ${this.path}`)
    await this.#removeOldest()
  }

  async #removeOldest(): Promise<void> {
    const removed = await removeOldest(this.#init.directory, this.#name)
    if (removed.length > 0) this.#init.say(`too many transcripts: the oldest were removed, ${removed.join(', ')}`)
  }
}
