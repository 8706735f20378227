import type { Line } from './line.ts'
import { type Look, inColourOf, marksOf } from './look.ts'
import { type Cell, type Row, trimmed } from './run-terminal.ts'

/** Of one line: what goes on beyond is printed as a line that goes on. */
const MAX_CELLS = 4_096

const render = (cells: readonly Cell[], colour: boolean): string => {
  let out = ''
  let now = ''
  for (const { text, sgr } of cells) {
    if (colour && sgr !== now) {
      out += sgr === '' ? '\u001b[m' : `\u001b[0;${sgr}m`
      now = sgr
    }
    out += text
  }
  return now === '' ? out : `${out}\u001b[m`
}

/** Puts rows of a command's screen together to the lines that it wrote, each behind a mark that it cannot write. */
export class OutputLines {
  readonly #look: Look
  readonly #whoami: string
  #line: readonly Cell[] = []
  #isOpen = false
  #goesOn = false
  #isAgain = false

  constructor(init: { look: Look; whoami: string }) {
    this.#look = init.look
    this.#whoami = init.whoami
  }

  /** Rows in their order; `isAgain`: they were printed before, and have changed since. The last line may go on with the next rows. */
  rows(rows: readonly Row[], isAgain = false): Line[] {
    const out: Line[] = []
    for (const { cells, continues } of rows) {
      if (!continues || isAgain !== this.#isAgain) out.push(...this.end())
      this.#isOpen = true
      this.#isAgain = isAgain
      this.#line = [...this.#line, ...cells]
      if (this.#line.length < MAX_CELLS) continue
      out.push(this.#print(this.#line))
      this.#goesOn = true
      this.#line = []
    }
    return out
  }

  /** The line that is open, when nothing more belongs to it. */
  end(): Line[] {
    if (!this.#isOpen) return []
    const rest = trimmed(this.#line)
    const out = rest.length > 0 || !this.#goesOn ? [this.#print(rest)] : []
    this.#isOpen = false
    this.#goesOn = false
    this.#line = []
    return out
  }

  /** What is open here, and these rows behind it, as they would be printed now. */
  preview(rows: readonly Row[]): Line[] {
    const copy = new OutputLines({ look: this.#look, whoami: this.#whoami })
    copy.#line = this.#line
    copy.#isOpen = this.#isOpen
    copy.#goesOn = this.#goesOn
    return [...copy.rows(rows), ...copy.end()]
  }

  #print(cells: readonly Cell[]): Line {
    const { output, goesOn, again } = marksOf(this.#look)
    const inColour = (mark: string): string => inColourOf(this.#look, this.#whoami, mark)
    const first = this.#isAgain ? again : this.#goesOn ? goesOn : output
    return { first: inColour(first), next: inColour(goesOn), text: render(cells, this.#look.colour) }
  }
}
