import { type Hash, createHash } from 'node:crypto'
import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { AppendedFile, freeSpace } from '../journal/file.ts'
import { type CastHeader, type CastKind, castEvent, castHeader } from '../protocol/console/asciicast.ts'
import { MAX_RECORDING, MAX_RECORDING_UNWRITTEN, RECORDING_WRITE_MS } from '../protocol/limits/terminal.ts'
import { TRANSCRIPT_FLOORS } from '../protocol/limits/tools.ts'
import type { OutputName } from '../protocol/reasons.ts'

/** Output within this many milliseconds is one event. */
const JOIN_MS = 10
const JOIN_CHARACTERS = 16 * 1024

/** A recording after its end, for the audit log. */
export interface RecordingEnd {
  readonly name: string
  readonly bytes: number
  /** SHA-256 of the file as hex. */
  readonly sha256: string
  /** False if the end of the output is missing. */
  readonly complete: boolean
}

export interface RecordingInit {
  readonly name: string
  readonly directory: string
  /** Called when the program may go on after `output` returned false. */
  onRoom(): void
  /** Called once when no more can be written. */
  onFailed(why: string): void
  /** For tests. Default: MAX_RECORDING. */
  readonly max?: number
}

interface Piece {
  readonly ms: number
  readonly kind: CastKind
  text: string
}

/**
 * Writes what one command shows, with times and sizes, to a private file. What is typed is not in it, except as far as the terminal echoes
 * it. Each batch is synced.
 */
export class TerminalRecording {
  readonly #clock: Clock
  readonly #init: RecordingInit
  readonly #file: AppendedFile
  readonly #begun: number
  readonly #hash: Hash = createHash('sha256')
  readonly #decoders = {
    stdout: new TextDecoder('utf-8', { ignoreBOM: true }),
    stderr: new TextDecoder('utf-8', { ignoreBOM: true }),
  }
  #pieces: Piece[] = []
  /** Characters of the pieces. */
  #unwritten = 0
  #isFull = false
  #hasFailed = false
  #writing: Promise<void> | null = null
  #timer: Timer | null = null

  private constructor(clock: Clock, init: RecordingInit, file: AppendedFile) {
    this.#clock = clock
    this.#init = init
    this.#file = file
    this.#begun = clock.monotonic()
  }

  /** Writes the header of a new file. Throws `conflict` if the name exists, and errors of the disk. */
  static async create(
    { clock }: { readonly clock: Clock },
    init: RecordingInit,
    path: string,
    header: CastHeader,
  ): Promise<TerminalRecording> {
    const recording = new TerminalRecording(clock, init, await AppendedFile.create(path))
    try {
      await recording.#append(castHeader(header))
      return recording
    } catch (error) {
      await recording.discard()
      throw error
    }
  }

  get name(): string {
    return this.#init.name
  }

  /** False means to read no more from the program before `onRoom`. */
  output(stream: OutputName, data: Uint8Array): boolean {
    if (this.#hasFailed) return true
    this.#add('o', this.#decoders[stream].decode(data, { stream: true }))
    this.#isFull = this.#unwritten >= MAX_RECORDING_UNWRITTEN
    return !this.#isFull
  }

  resized({ cols, rows }: { readonly cols: number; readonly rows: number }): void {
    if (!this.#hasFailed) this.#add('r', `${cols}x${rows}`)
  }

  /** Writes the rest and closes the file. */
  async finish(): Promise<RecordingEnd> {
    for (const decoder of Object.values(this.#decoders)) if (!this.#hasFailed) this.#add('o', decoder.decode())
    this.#timer?.cancel()
    await this.#writing
    this.#timer?.cancel()
    if (!this.#hasFailed) await this.#write()
    await this.#file.close()
    return { name: this.name, bytes: this.#file.size, sha256: this.#hash.digest('hex'), complete: !this.#hasFailed }
  }

  /** Removes the file of a command that never ran. */
  async discard(): Promise<void> {
    this.#hasFailed = true
    this.#timer?.cancel()
    await this.#writing
    await this.#file.remove()
  }

  #add(kind: CastKind, text: string): void {
    if (text === '') return
    const ms = this.#clock.monotonic() - this.#begun
    const last = this.#pieces.at(-1)
    const joins = last?.kind === 'o' && kind === 'o' && ms - last.ms <= JOIN_MS && last.text.length < JOIN_CHARACTERS
    if (joins) last.text += text
    // Only the last of several sizes is seen.
    else if (kind === 'r' && last?.kind === 'r') this.#pieces[this.#pieces.length - 1] = { ms, kind, text }
    else this.#pieces.push({ ms, kind, text })
    this.#unwritten += text.length
    if (this.#unwritten >= MAX_RECORDING_UNWRITTEN) this.#writeSoon(0)
    else this.#writeSoon(RECORDING_WRITE_MS)
  }

  #writeSoon(ms: number): void {
    if (this.#writing !== null || (this.#timer !== null && ms > 0)) return
    this.#timer?.cancel()
    this.#timer = this.#clock.setTimeout(() => {
      this.#timer = null
      this.#writing = this.#write().finally(() => {
        this.#writing = null
        if (this.#pieces.length > 0 && !this.#hasFailed)
          this.#writeSoon(this.#unwritten >= MAX_RECORDING_UNWRITTEN ? 0 : RECORDING_WRITE_MS)
      })
    }, ms)
  }

  /** Never rejects. */
  async #write(): Promise<void> {
    const pieces = this.#pieces
    this.#pieces = []
    this.#unwritten = 0
    try {
      if (pieces.length > 0) await this.#append(pieces.map(castEvent).join(''))
    } catch (error) {
      this.#hasFailed = true
      this.#pieces = []
      this.#init.onFailed(errorText(error))
    }
    if (!this.#isFull || this.#unwritten >= MAX_RECORDING_UNWRITTEN) return
    this.#isFull = false
    this.#init.onRoom()
  }

  /** Throws if the recording is full or gone, or the disk is full. */
  async #append(text: string): Promise<void> {
    const bytes = Buffer.from(text)
    const { directory, max = MAX_RECORDING } = this.#init
    if (this.#file.size + bytes.length > max) throw new Error(`the recording has more than ${max} bytes`)
    if (!this.#file.isThere) throw new Error('the file of the recording was removed')
    const { spare } = await freeSpace(directory, TRANSCRIPT_FLOORS)
    if (spare < bytes.length) throw new Error('too little space left on the disk')
    await this.#file.append(bytes)
    this.#hash.update(bytes)
  }
}
