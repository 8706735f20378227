import { TerminalReader } from '../../../base/terminal-text.ts'
import { shown } from '../../../base/visible-text.ts'
import { CONSOLE_TERMINAL } from '../../../protocol/console/messages.ts'
import type { ShownRun } from '../screen.ts'
import { type WrappedLine, type TextStyle, characterWidth, inColourOf, marksOf } from './cells.ts'
import { type Cell, type TerminalRow, RunTerminal, trimmed } from './run-terminal.ts'

/** Combining marks kept per character. */
const MAX_MARKS = 8
/** Larger parameters have no other effect on 80 columns, and colour numbers end here. */
const MAX_NUMBER = 255

// oxlint-disable-next-line no-control-regex
const NOT_ASCII = /[^\u0000-\u007f]/

/** VT, FF and NEL. */
const LINE_ENDS = '\u000b\f\u0085'
/** Final bytes of sequences that move the cursor, erase, insert or delete. */
const PLAIN_FINALS = 'ABCDEFGHfde`aJKXP@LMSTrIZb'
const { cols, rows } = CONSOLE_TERMINAL
/** Largest useful parameter of sequences that count rows or repeat. */
const MOST: Readonly<Record<string, number>> = { S: rows, T: rows, L: rows, M: rows, b: cols, I: 10, Z: 10 }

export interface FilteredOutput {
  /** Visible text, BS, HT, LF, CR and the permitted sequences. */
  text(text: string): void
  /** The program erases its whole screen. Its content must be printed before. */
  clear(): void
}

const numbers = (parameters: string, most: number): string =>
  parameters.replaceAll(/\d+/g, (digits) => (digits.length > 4 ? String(most) : String(Math.min(Number(digits), most))))

/**
 * Filters output for the emulated terminal. It removes modes, strings (titles, clipboard, links), queries, the alternate screen and
 * other character sets, and bounds numbers and combining marks.
 */
export class OutputFilter {
  readonly #to: FilteredOutput
  readonly #decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  readonly #reader = new TerminalReader({
    text: (text) => this.#visible(text),
    control: (character) => this.#control(character),
    escape: (final) => this.#escape(final),
    sequence: (parameters, final) => this.#sequence(parameters, final),
  })
  #marks = 0
  #out = ''

  constructor(to: FilteredOutput) {
    this.#to = to
  }

  push(bytes: Uint8Array): void {
    this.#reader.push(this.#decoder.decode(bytes, { stream: true }))
    this.#give()
  }

  /** Releases retained characters at the end, or before a gap. */
  end(): void {
    this.#reader.push(this.#decoder.decode())
    this.#reader.reset()
    this.#marks = 0
    this.#give()
  }

  #give(): void {
    if (this.#out !== '') this.#to.text(this.#out)
    this.#out = ''
  }

  #visible(text: string): void {
    if (!NOT_ASCII.test(text)) {
      this.#marks = 0
      this.#out += text
      return
    }
    for (const character of shown(text)) {
      this.#marks = characterWidth(character.codePointAt(0)!) === 0 ? this.#marks + 1 : 0
      if (this.#marks <= MAX_MARKS) this.#out += character
    }
  }

  #control(character: string): void {
    if (character === '\b' || character === '\r') this.#out += character
    else if (LINE_ENDS.includes(character)) this.#out += '\n'
  }

  #escape(final: string): void {
    if (final === 'c') {
      this.#cleared()
      this.#out += '\u001b[m\u001b[r\u001b[2J\u001b[H'
    } else if ('78DEM'.includes(final)) this.#out += `\u001b${final}`
  }

  #sequence(parameters: string, final: string): void {
    if (final === 'm' && /^[\d;:]*$/.test(parameters)) this.#out += `\u001b[${numbers(parameters, MAX_NUMBER)}m`
    else if (/^\d*(;\d*)?$/.test(parameters)) this.#plain(parameters, final)
  }

  #plain(parameters: string, final: string): void {
    // Terminals read only the first parameter of these two.
    const first = Number(parameters.split(';')[0])
    if (final === 'J' && first >= 2) {
      // Parameter 3 would erase the rows that have scrolled off.
      if (first > 2) return
      this.#cleared()
      this.#out += '\u001b[2J'
    } else if ((final === 's' || final === 'u') && parameters === '') this.#out += `\u001b[${final}`
    // If a scroll region started below the first row, rows that scroll off would be lost.
    else if (final === 'r' && first > 1) return
    else if (PLAIN_FINALS.includes(final)) this.#out += `\u001b[${numbers(parameters, MOST[final] ?? MAX_NUMBER)}${final}`
  }

  #cleared(): void {
    this.#give()
    this.#to.clear()
  }
}

/** Columns of one printed line. A longer line is printed in parts. */
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

/** Joins rows of a command's screen to the lines that the command wrote. A mark that a command cannot write precedes each line. */
export class OutputLines {
  readonly #look: TextStyle
  readonly #whoami: string
  #line: readonly Cell[] = []
  #isOpen = false
  #isContinued = false
  #isAgain = false

  constructor(init: { look: TextStyle; whoami: string }) {
    this.#look = init.look
    this.#whoami = init.whoami
  }

  /** Adds rows in order. `isAgain` means that they were printed before and have changed. The last line may continue with the next rows. */
  rows(rows: readonly TerminalRow[], isAgain = false): WrappedLine[] {
    const out: WrappedLine[] = []
    for (const { cells, continues } of rows) {
      if (!continues || isAgain !== this.#isAgain) out.push(...this.end())
      this.#isOpen = true
      this.#isAgain = isAgain
      this.#line = [...this.#line, ...cells]
      if (this.#line.length < MAX_CELLS) continue
      out.push(this.#print(this.#line))
      this.#isContinued = true
      this.#line = []
    }
    return out
  }

  end(): WrappedLine[] {
    if (!this.#isOpen) return []
    const rest = trimmed(this.#line)
    const out = rest.length > 0 || !this.#isContinued ? [this.#print(rest)] : []
    this.#isOpen = false
    this.#isContinued = false
    this.#line = []
    return out
  }

  /** The open line and these rows as they would be printed now. */
  preview(rows: readonly TerminalRow[]): WrappedLine[] {
    const copy = new OutputLines({ look: this.#look, whoami: this.#whoami })
    copy.#line = this.#line
    copy.#isOpen = this.#isOpen
    copy.#isContinued = this.#isContinued
    return [...copy.rows(rows), ...copy.end()]
  }

  #print(cells: readonly Cell[]): WrappedLine {
    const { output, continued: goesOn, again } = marksOf(this.#look)
    const inColour = (mark: string): string => inColourOf(this.#look, this.#whoami, mark)
    const first = this.#isAgain ? again : this.#isContinued ? goesOn : output
    return { first: inColour(first), next: inColour(goesOn), text: render(cells, this.#look.colour) }
  }
}

/** A piece of filtered text. Null means the screen is erased. */
type Step = string | null

const textOf = ({ cells }: TerminalRow): string => cells.map(({ text, sgr }) => (sgr === '' ? text : `${sgr} ${text}`)).join('')

/**
 * Turns the output of one command into lines. A row is printed when it is final, because it has scrolled off or the command has ended. With
 * `early`, for displays that cannot redraw rows, it is printed as soon as the cursor is below it, and again if it changes later.
 */
export class RunView {
  readonly #terminal: RunTerminal
  readonly #lines: OutputLines
  readonly #early: boolean
  readonly #steps: Step[] = []
  readonly #filter = new OutputFilter({ text: (text) => this.#steps.push(text), clear: () => this.#steps.push(null) })
  /** Texts of the rows that were printed early, from the top of the screen. */
  #printed: string[] = []

  private constructor(terminal: RunTerminal, lines: OutputLines, early: boolean) {
    this.#terminal = terminal
    this.#lines = lines
    this.#early = early
  }

  static async open(run: Pick<ShownRun, 'whoami'>, look: TextStyle, early: boolean): Promise<RunView> {
    return new RunView(await RunTerminal.open(), new OutputLines({ look, whoami: run.whoami }), early)
  }

  /** Adds at most one block of output and returns the lines that are final now. */
  async push(data: Uint8Array): Promise<WrappedLine[]> {
    this.#filter.push(data)
    return this.#show()
  }

  /** Returns all remaining lines, at the end or before a gap. Later output starts on a new line. */
  async end(): Promise<WrappedLine[]> {
    this.#filter.end()
    const lines = await this.#show()
    return [...lines, ...this.#all(), ...this.#lines.end()]
  }

  /** Lines that may still change, as they are now. */
  preview(): WrappedLine[] {
    return this.#lines.preview(this.#terminal.onScreen().slice(this.#printed.length))
  }

  dispose(): void {
    this.#terminal.dispose()
  }

  async #show(): Promise<WrappedLine[]> {
    const out: WrappedLine[] = []
    for (const step of this.#steps.splice(0)) {
      if (step === null) out.push(...this.#all(), ...this.#lines.end())
      else {
        await this.#terminal.write(step)
        out.push(...this.#take(this.#terminal.scrolledOff()))
      }
    }
    return this.#early ? [...out, ...this.#settled()] : out
  }

  #take(rows: readonly TerminalRow[]): WrappedLine[] {
    const early = this.#printed.splice(0, rows.length)
    const out: WrappedLine[] = []
    for (const [at, row] of rows.entries())
      if (at >= early.length) out.push(...this.#lines.rows([row]))
      else if (textOf(row) !== early[at]) out.push(...this.#lines.rows([row], true))
    return out
  }

  #all(): WrappedLine[] {
    const rows = this.#terminal.onScreen()
    // A row that was printed and is blank now is not printed again.
    const out = this.#take(rows)
    this.#printed = []
    return out
  }

  #settled(): WrappedLine[] {
    const rows = this.#terminal.onScreen()
    const next = rows.slice(this.#printed.length, this.#terminal.cursorRow)
    this.#printed.push(...next.map(textOf))
    const out = this.#lines.rows(next)
    const isOpen = rows[this.#printed.length]?.continues === true
    return next.length > 0 && !isOpen ? [...out, ...this.#lines.end()] : out
  }
}
