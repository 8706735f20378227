import type { IBufferLine, Terminal } from '@xterm/headless'
import { CONSOLE_TERMINAL } from '../../../protocol/console/messages.ts'
import { characterWidth, sgrOf } from './cells.ts'

/** Rows that one piece of text can make; pieces are cut so that they do not make more. */
const SCROLLBACK_ROWS = 5_000

export interface Cell {
  readonly text: string
  /** 1 or 2. */
  readonly width: number
  /** Parameters of SGR; '' = none. */
  readonly sgr: string
}

export interface TerminalRow {
  readonly cells: readonly Cell[]
  /** It goes on with the line of the row above. */
  readonly continues: boolean
}

/** As Unicode has it today; the terminal itself knows version 6. */
const WIDTHS = {
  version: 'today',
  wcwidth: characterWidth,
  charProperties: (code: number, preceding: number): number => {
    const width = characterWidth(code)
    const before = (preceding >> 1) & 3
    const joins = width === 0 && before > 0
    return ((joins ? before : width) << 1) | (joins ? 1 : 0)
  },
}

const isBlank = ({ text, sgr }: Cell): boolean => text === ' ' && sgr === ''

const cellsOf = (line: IBufferLine): Cell[] => {
  const cells: Cell[] = []
  for (let x = 0; x < line.length; x++) {
    const cell = line.getCell(x)
    if (cell !== undefined && cell.getWidth() > 0) cells.push({ text: cell.getChars() || ' ', width: cell.getWidth(), sgr: sgrOf(cell) })
  }
  return cells
}

/** Without the blanks at its end. */
export const trimmed = (cells: readonly Cell[]): readonly Cell[] => {
  let end = cells.length
  while (end > 0 && isBlank(cells[end - 1]!)) end -= 1
  return cells.slice(0, end)
}

/** The screen of one command: nothing that is written to it reaches the human's terminal, and it answers nothing. */
export class RunTerminal {
  readonly #terminal: Terminal
  /** Rows that scrolled off were taken; the next text forgets them. */
  #isTaken = false

  private constructor(terminal: Terminal) {
    this.#terminal = terminal
  }

  /** The terminal's code is loaded with the first. */
  static async open(): Promise<RunTerminal> {
    const { default: xterm } = await import('@xterm/headless')
    const terminal = new xterm.Terminal({
      ...CONSOLE_TERMINAL,
      scrollback: SCROLLBACK_ROWS,
      allowProposedApi: true,
      logLevel: 'off',
      // Lines of a terminal that is set raw end with a line feed alone.
      convertEol: true,
    })
    terminal.unicode.register(WIDTHS)
    terminal.unicode.activeVersion = WIDTHS.version
    return new RunTerminal(terminal)
  }

  /** Text of an OutputFilter. Every row that scrolls off must be taken before the next. */
  async write(text: string): Promise<void> {
    const forget = this.#isTaken ? '\u001b[3J' : ''
    this.#isTaken = false
    await new Promise<void>((resolve) => this.#terminal.write(forget + text, resolve))
  }

  /** The rows that have scrolled off since the last text: nothing changes them any more. */
  scrolledOff(): TerminalRow[] {
    if (this.#isTaken) return []
    this.#isTaken = true
    return this.#rows(0, this.#terminal.buffer.active.baseY)
  }

  /** The rows of the screen, down to the last that shows something. */
  onScreen(): TerminalRow[] {
    const { baseY } = this.#terminal.buffer.active
    const rows = this.#rows(baseY, baseY + CONSOLE_TERMINAL.rows)
    return rows.slice(0, rows.findLastIndex(({ cells }) => trimmed(cells).length > 0) + 1)
  }

  /** Rows of the screen above the cursor. */
  get cursorRow(): number {
    return this.#terminal.buffer.active.cursorY
  }

  dispose(): void {
    this.#terminal.dispose()
  }

  #rows(from: number, to: number): TerminalRow[] {
    const { active } = this.#terminal.buffer
    return Array.from({ length: to - from }, (_none, at) => {
      const line = active.getLine(from + at)
      return line === undefined ? { cells: [], continues: false } : { cells: cellsOf(line), continues: line.isWrapped }
    })
  }
}
