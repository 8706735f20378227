import type { ShownRun } from '../screen.ts'
import type { Line } from './line.ts'
import type { Look } from './look.ts'
import { OutputFilter } from './output-filter.ts'
import { OutputLines } from './output-lines.ts'
import { type Row, RunTerminal } from './run-terminal.ts'

/** What the filter gave, in its order; null: the screen is erased. */
type Step = string | null

const textOf = ({ cells }: Row): string => cells.map(({ text, sgr }) => (sgr === '' ? text : `${sgr} ${text}`)).join('')

/**
 * What one command writes, as lines. A row of its screen is printed when nothing can change it any more: it has
 * scrolled off, or the command has ended. With `early`, for displays that cannot draw rows anew, it is printed as soon as
 * the cursor is below it, and once more should it change afterwards.
 */
export class RunView {
  readonly #terminal: RunTerminal
  readonly #lines: OutputLines
  readonly #early: boolean
  readonly #steps: Step[] = []
  readonly #filter = new OutputFilter({ text: (text) => this.#steps.push(text), clear: () => this.#steps.push(null) })
  /** Texts of the first rows of the screen, as they were printed early. */
  #printed: string[] = []

  private constructor(terminal: RunTerminal, lines: OutputLines, early: boolean) {
    this.#terminal = terminal
    this.#lines = lines
    this.#early = early
  }

  static async open(run: Pick<ShownRun, 'whoami'>, look: Look, early: boolean): Promise<RunView> {
    return new RunView(await RunTerminal.open(), new OutputLines({ look, whoami: run.whoami }), early)
  }

  /** The lines that are final by these bytes, of which there are not more than a block. */
  async push(data: Uint8Array): Promise<Line[]> {
    this.#filter.push(data)
    return this.#show()
  }

  /** All that there is, before a part that is missing, or at the end. What comes afterwards begins below it. */
  async end(): Promise<Line[]> {
    this.#filter.end()
    const lines = await this.#show()
    return [...lines, ...this.#all(), ...this.#lines.end()]
  }

  /** What is not final yet, as it stands now. */
  preview(): Line[] {
    return this.#lines.preview(this.#terminal.onScreen().slice(this.#printed.length))
  }

  dispose(): void {
    this.#terminal.dispose()
  }

  async #show(): Promise<Line[]> {
    const out: Line[] = []
    for (const step of this.#steps.splice(0)) {
      if (step === null) out.push(...this.#all(), ...this.#lines.end())
      else {
        await this.#terminal.write(step)
        out.push(...this.#take(this.#terminal.scrolledOff()))
      }
    }
    return this.#early ? [...out, ...this.#settled()] : out
  }

  /** Rows from the top of the screen, which leave it. */
  #take(rows: readonly Row[]): Line[] {
    const early = this.#printed.splice(0, rows.length)
    const out: Line[] = []
    for (const [at, row] of rows.entries())
      if (at >= early.length) out.push(...this.#lines.rows([row]))
      else if (textOf(row) !== early[at]) out.push(...this.#lines.rows([row], true))
    return out
  }

  #all(): Line[] {
    const rows = this.#terminal.onScreen()
    // Rows that were printed and are blank now need no second line.
    const out = this.#take(rows)
    this.#printed = []
    return out
  }

  #settled(): Line[] {
    const rows = this.#terminal.onScreen()
    const next = rows.slice(this.#printed.length, this.#terminal.cursorRow)
    this.#printed.push(...next.map(textOf))
    const out = this.#lines.rows(next)
    const isOpen = rows[this.#printed.length]?.continues === true
    return next.length > 0 && !isOpen ? [...out, ...this.#lines.end()] : out
  }
}
