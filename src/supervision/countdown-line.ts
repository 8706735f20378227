import type { Clock, Timer } from '../base/clock.ts'
import { type Output, write } from '../cli/output.ts'

/** Width of a terminal that reports none, or 0. */
const DEFAULT_COLUMNS = 80
/** Returns to the beginning of the line and clears it. */
const EMPTY_LINE = '\r\u001b[K'

/** "1:05" for 65 seconds. Rounded up, so that the last value is not 0. */
export const clockText = (ms: number): string => {
  const seconds = Math.max(0, Math.ceil(ms / 1_000))
  return `${Math.floor(seconds / 60)}:${`${seconds % 60}`.padStart(2, '0')}`
}

/** Shows on standard error that something waits: a counting line on a terminal, otherwise a plain line for each change. */
export class CountdownLine {
  readonly #components: { readonly stderr: Output; readonly clock: Clock }
  #timer: Timer | null = null
  #shown = false

  constructor(components: { readonly stderr: Output; readonly clock: Clock }) {
    this.#components = components
  }

  /** `text` makes a line from the remaining milliseconds. False if standard error is closed. */
  async show(text: (leftMs: number) => string, ms: number): Promise<boolean> {
    const { stderr, clock } = this.#components
    this.#timer?.cancel()
    if (stderr.isTTY !== true) return write(stderr, `${text(ms)}\n`)
    return this.#count(text, clock.monotonic() + ms)
  }

  /** Clears the line for the next output. */
  async end(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    if (!this.#shown) return
    this.#shown = false
    await write(this.#components.stderr, EMPTY_LINE)
  }

  async #count(text: (leftMs: number) => string, until: number): Promise<boolean> {
    const { stderr, clock } = this.#components
    const left = until - clock.monotonic()
    this.#shown = true
    // A wrapped line could not be cleared.
    const fitting = text(left).slice(0, Math.max(1, (stderr.columns || DEFAULT_COLUMNS) - 1))
    if (left > 0) this.#timer = clock.setTimeout(() => void this.#count(text, until), left % 1_000 || 1_000, { unref: true })
    return write(stderr, `${EMPTY_LINE}${fitting}`)
  }
}
