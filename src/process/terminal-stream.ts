import { closeSync, readSync, writeSync } from 'node:fs'
import { Duplex } from 'node:stream'
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises'
import { ReadStream } from 'node:tty'
import { errnoOf } from '../base/errors.ts'

/** After the program's end, output is read until it pauses for this long. A descendant may hold the terminal for ever. */
const QUIET_MS = 50
/** Pauses before writing to a full terminal again. They grow, because free space is not reported. */
const TYPE_PAUSE_MS = 1
const MAX_TYPE_PAUSE_MS = 32
/** End of file is a character on a terminal (termios, VEOF). */
const END_OF_FILE = '\u0004'
const LINE_FEED = 10

/** Bytes of one read or write. */
const CHUNK_BYTES = 64 * 1024

/**
 * Reads written but undelivered output. On Linux a kernel worker delivers it, possibly late. A read waits for the worker, the event loop's
 * poll does not. Empty if no output is left.
 */
const restOf = (master: number): Buffer => {
  const rest = Buffer.allocUnsafe(CHUNK_BYTES)
  try {
    return rest.subarray(0, readSync(master, rest))
  } catch {
    // EAGAIN means that no output is available, and EIO that no process has the program's side open.
    return rest.subarray(0, 0)
  }
}

/** Descriptors of both sides of a terminal. */
export interface TerminalSides {
  /** Ours. Reads and writes of it do not block. */
  readonly master: number
  /** The program's. While it is open, the terminal is not hung up. Many programs close their streams shortly before they end. */
  readonly slave: number
}

/**
 * Output of a terminal, at the speed of its reader, and input that is typed into it. The end of the input is typed as end of file. Owns the
 * descriptors.
 */
export class TerminalStream extends Duplex {
  readonly #master: number
  #slave: number | null
  /** Polls the terminal. Its own writes are not used, because they loop on a full terminal and block all else. */
  readonly #reader: ReadStream
  readonly #closed = Promise.withResolvers<void>()
  #lastHeard = performance.now()
  #lastTyped = LINE_FEED

  constructor({ master, slave }: TerminalSides) {
    super()
    this.#master = master
    this.#reader = new ReadStream(master)
    this.#slave = slave
    this.#reader.pause()
    this.#reader.on('data', (chunk) => this.#show(chunk))
    // EIO means that no process has the program's side open.
    this.#reader.on('error', () => undefined)
    this.#reader.once('close', () => {
      this.#closed.resolve()
      this.push(null)
    })
  }

  /** False after the terminal was closed. Its descriptor may belong to another file from then on. */
  get isOpen(): boolean {
    return !this.#reader.destroyed
  }

  /** Call it after the program's end. The output ends when its rest was read and no more comes. */
  async finish(): Promise<void> {
    this.#release()
    for (let before = NaN; this.isOpen && (this.#reader.isPaused() || this.#lastHeard !== before);) {
      before = this.#lastHeard
      await Promise.race([sleep(QUIET_MS), this.#closed.promise])
      // On a busy machine a late timer fires before bytes that have arrived, so those are read first.
      await nextTurn()
      const rest = this.isOpen && !this.#reader.isPaused() ? restOf(this.#master) : null
      if (rest !== null && rest.length > 0) this.#show(rest)
    }
    this.#reader.destroy()
  }

  override _read(): void {
    if (!this.#reader.isPaused()) return
    this.#lastHeard = performance.now()
    this.#reader.resume()
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.#lastTyped = chunk.at(-1) ?? this.#lastTyped
    this.#type(chunk, done)
  }

  override _final(done: () => void): void {
    // After an incomplete line, the first end of file only delivers the line.
    this.#type(Buffer.from(this.#lastTyped === LINE_FEED ? END_OF_FILE : END_OF_FILE.repeat(2)), done)
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#release()
    this.#reader.destroy()
    done(error)
  }

  #show(chunk: Buffer): void {
    this.#lastHeard = performance.now()
    if (!this.push(chunk)) this.#reader.pause()
  }

  /** Drops bytes that no program can read any more. */
  #type(bytes: Buffer, done: () => void, pause = TYPE_PAUSE_MS): void {
    if (!this.isOpen) return done()
    try {
      const rest = bytes.subarray(writeSync(this.#master, bytes, 0, Math.min(bytes.length, CHUNK_BYTES)))
      if (rest.length === 0) done()
      else setImmediate(() => this.#type(rest, done))
    } catch (error) {
      // Else the terminal is full while its program does not read.
      if (errnoOf(error) !== 'EAGAIN') return done()
      setTimeout(() => this.#type(bytes, done, Math.min(2 * pause, MAX_TYPE_PAUSE_MS)), pause)
    }
  }

  #release(): void {
    if (this.#slave !== null) closeSync(this.#slave)
    this.#slave = null
  }
}
