import type { Clock, Timer } from '../../base/clock.ts'
import { shownLine } from '../../base/visible-text.ts'
import type { Output } from '../../cli/output.ts'

/** Shorter waits are not reported. */
const SILENCE_MS = 1_000
/** Width of a terminal that reports none or 0. */
const DEFAULT_COLUMNS = 80
/** Moves to the start of the line and erases it. */
export const EMPTY_LINE = '\r\u001b[K'

/** Columns of a line that does not wrap, because a wrapped line could not be erased. */
export const lineWidth = ({ columns }: Output): number => Math.max(1, (columns || DEFAULT_COLUMNS) - 1)

/** Shows on a terminal what a command waits for, and how long. The line is erased before other output. */
export class Progress {
  readonly #components: { readonly stderr: Output; readonly clock: Clock }
  readonly #off: boolean
  /** Nested waits. The outermost is shown. */
  #waiting = 0
  #timer: Timer | null = null
  #shown = false

  constructor(components: { readonly stderr: Output; readonly clock: Clock }, init: { readonly off: boolean }) {
    this.#components = components
    this.#off = init.off || components.stderr.isTTY !== true
  }

  /** Shows `what` until the returned function is called, before any other output. */
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
    const fitting = `x0x: ${shownLine(what)}, ${seconds} s`.slice(0, lineWidth(stderr))
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
