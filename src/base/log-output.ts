import { closeSync, constants, fstatSync, openSync, writeSync } from 'node:fs'
import { isatty } from 'node:tty'
import { attempt } from './errors.ts'

/** Bytes of log lines that are kept in memory while the log cannot be written. Later lines are dropped and counted. */
export const MAX_HELD_LOG_BYTES = 256 * 1024
/** How often a log that could not be written is tried again. */
const RETRY_MS = 1_000

const [STDOUT, STDERR] = [1, 2]

/**
 * Opens descriptor 1 or 2 again, so that its writes do not block. The reader of a pipe or terminal may be slow or stopped. The new file
 * description does not block, and the one that other programs share stays as it is. A socket cannot be opened again, nor can a pipe of
 * another user or one without /proc. The runtime makes those non-blocking when it opens its streams (see `firstCrash`), because a daemon
 * must not wait for the reader of its log.
 */
const openAgain = (fd: number): number => {
  const kind = attempt(() => fstatSync(fd))
  if (kind === null) return fd
  if (kind.isSocket()) void (fd === STDOUT ? process.stdout : process.stderr)
  if (!kind.isFIFO() && !isatty(fd)) return fd
  return attempt(() => openSync(`/proc/self/fd/${fd}`, constants.O_WRONLY | constants.O_NONBLOCK | constants.O_NOCTTY)) ?? fd
}

/** Replaces lost terminals by the null device. At exit, the runtime sets the modes of its terminals and aborts if one is gone. */
const replaceLostTerminals = (terminals: readonly number[]): void => {
  for (const fd of terminals) {
    if (isatty(fd)) continue
    attempt(() => closeSync(fd))
    // open(2) returns the lowest free number, which is this one.
    attempt(() => openSync('/dev/null', constants.O_RDWR))
  }
}

/**
 * Writes log lines synchronously, so that the last line before a crash is in the log. A failed write never throws and never waits. It
 * keeps the lines and tries again each second; beyond `MAX_HELD_LOG_BYTES` it drops and counts them.
 */
export class LogOutput {
  /** Receives the number of dropped lines as soon as the log can be written again. */
  onRecovered: (dropped: number) => void = () => undefined
  readonly #fd: number
  readonly #held: Buffer[] = []
  #heldBytes = 0
  /** Lines dropped since the last call of `onRecovered`. */
  #dropped = 0
  #lost = 0
  #isRetrying = false

  constructor(fd: number) {
    this.#fd = fd
  }

  /** Lines dropped since the process started. */
  get lost(): number {
    return this.#lost
  }

  write(line: string): void {
    const bytes = Buffer.from(line)
    const rest = this.flush() ? this.#write(bytes) : bytes
    if (rest.length === 0) return
    // The rest of a partly written line is always kept, so that the next line starts on its own line.
    const isWhole = rest.length === bytes.length
    if (isWhole && (this.#dropped > 0 || this.#heldBytes + rest.length > MAX_HELD_LOG_BYTES)) this.#drop()
    else this.#hold(rest)
  }

  /** Writes the held lines. Returns false if some are left. */
  flush(): boolean {
    for (let [line] = this.#held; line !== undefined; [line] = this.#held) {
      const rest = this.#write(line)
      this.#heldBytes -= line.length - rest.length
      if (rest.length > 0) {
        this.#held[0] = rest
        return false
      }
      this.#held.shift()
    }
    const dropped = this.#dropped
    this.#dropped = 0
    if (dropped > 0) this.onRecovered(dropped)
    return this.#held.length === 0
  }

  /** Returns the bytes that could not be written. */
  #write(bytes: Buffer): Buffer {
    let rest = bytes
    while (rest.length > 0) {
      const written = attempt(() => writeSync(this.#fd, rest)) ?? 0
      if (written === 0) break
      rest = rest.subarray(written)
    }
    return rest
  }

  #hold(bytes: Buffer): void {
    this.#held.push(bytes)
    this.#heldBytes += bytes.length
    this.#retryLater()
  }

  #retryLater(): void {
    if (this.#isRetrying) return
    this.#isRetrying = true
    setTimeout(() => {
      this.#isRetrying = false
      if (!this.flush()) this.#retryLater()
    }, RETRY_MS).unref()
  }

  #drop(): void {
    this.#dropped += 1
    this.#lost += 1
  }
}

let standardOutput: LogOutput | null = null

/** Prints a program's message about its start without waiting for a stopped terminal (Ctrl-S). */
export const printAtStart = (text: string): void => {
  standardOutput ??= new LogOutput(openAgain(STDOUT))
  standardOutput.write(text)
}

let standardError: LogOutput | null = null

export const standardErrorLog = (): LogOutput => {
  if (standardError !== null) return standardError
  const output = new LogOutput(openAgain(STDERR))
  const terminals = [0, 1, 2].filter((fd) => isatty(fd))
  process.on('exit', () => {
    output.flush()
    replaceLostTerminals(terminals)
  })
  standardError = output
  return output
}

/** Dropped lines of this process's log, or 0 if it has none. */
export const lostLogLines = (): number => standardError?.lost ?? 0
