import type { Clock, Timer } from '../../base/clock.ts'
import { shownLine } from '../../base/visible-text.ts'
import type { Output } from '../../cli/output.ts'

/** Who waits no longer than this is told nothing. */
const SILENCE_MS = 1_000
/** Of a terminal that does not say, or says 0. */
const DEFAULT_COLUMNS = 80
/** Goes back to the beginning of the line and empties it. */
const EMPTY_LINE = '\r\u001b[K'

/** Says on a terminal, in a line that is gone before anything else is written, that a command still waits, for what, and how long. */
export class Progress {
  readonly #components: { readonly stderr: Output; readonly clock: Clock }
  readonly #off: boolean
  /** What is waited for now; the outermost is told. */
  #waiting = 0
  #timer: Timer | null = null
  #shown = false

  constructor(components: { readonly stderr: Output; readonly clock: Clock }, init: { readonly off: boolean }) {
    this.#components = components
    this.#off = init.off || components.stderr.isTTY !== true
  }

  /** Until the answer is called: before anything is written. */
  start(what: string): () => void {
    if (this.#off) return () => undefined
    if (this.#waiting === 0) this.#later(what, this.#components.clock.monotonic())
    this.#waiting += 1
    let over = false
    return () => {
      if (over) return
      over = true
      this.#waiting -= 1
      if (this.#waiting === 0) this.#clear()
    }
  }

  #later(what: string, since: number): void {
    this.#timer = this.#components.clock.setTimeout(() => this.#show(what, since), SILENCE_MS, { unref: true })
  }

  #show(what: string, since: number): void {
    const { stderr, clock } = this.#components
    const seconds = Math.round((clock.monotonic() - since) / 1_000)
    // A line that wraps could not be taken back.
    const fitting = `x0x: ${shownLine(what)}, ${seconds} s`.slice(0, Math.max(1, (stderr.columns || DEFAULT_COLUMNS) - 1))
    this.#shown = true
    stderr.write(`${EMPTY_LINE}${fitting}`)
    this.#later(what, since)
  }

  #clear(): void {
    this.#timer?.cancel()
    this.#timer = null
    if (!this.#shown) return
    this.#shown = false
    this.#components.stderr.write(EMPTY_LINE)
  }
}
