import type { IBufferLine, Terminal } from '@xterm/headless'
import { CONSOLE_TERMINAL } from '../../../protocol/console/messages.ts'
import { characterWidth, sgrOf } from './cells.ts'

/** Most rows that one piece of text can produce. The caller cuts pieces accordingly. */
const SCROLLBACK_ROWS = 5_000

export interface Cell {
  readonly text: string
  /** 1 or 2. */
  readonly width: number
  /** SGR parameters, or empty for none. */
  readonly sgr: string
}

export interface TerminalRow {
  readonly cells: readonly Cell[]
  /** Whether it continues the line of the row above. */
  readonly continues: boolean
}

/** Widths of current Unicode. The terminal library has version 6. */
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

/** Removes trailing blanks. */
export const trimmed = (cells: readonly Cell[]): readonly Cell[] => {
  let end = cells.length
  while (end > 0 && isBlank(cells[end - 1]!)) end -= 1
  return cells.slice(0, end)
}

/** An emulated screen for one command. Its output does not reach the operator's terminal, and queries get no reply. */
export class RunTerminal {
  readonly #terminal: Terminal
  /** The caller has taken the rows that scrolled off; the next write clears them. */
  #isTaken = false

  private constructor(terminal: Terminal) {
    this.#terminal = terminal
  }

  /** Loads the terminal library on first use. */
  static async open(): Promise<RunTerminal> {
    const { default: xterm } = await import('@xterm/headless')
    const terminal = new xterm.Terminal({
      ...CONSOLE_TERMINAL,
      scrollback: SCROLLBACK_ROWS,
      allowProposedApi: true,
      logLevel: 'off',
      // In raw mode, lines end with a line feed only.
      convertEol: true,
    })
    terminal.unicode.register(WIDTHS)
    terminal.unicode.activeVersion = WIDTHS.version
    return new RunTerminal(terminal)
  }

  /** Writes text of an `OutputFilter`. Take the rows that scrolled off before the next write. */
  async write(text: string): Promise<void> {
    const forget = this.#isTaken ? '\u001b[3J' : ''
    this.#isTaken = false
    await new Promise<void>((resolve) => this.#terminal.write(forget + text, resolve))
  }

  /** Rows that have scrolled off since the last write. They are final. */
  scrolledOff(): TerminalRow[] {
    if (this.#isTaken) return []
    this.#isTaken = true
    return this.#rows(0, this.#terminal.buffer.active.baseY)
  }

  /** Rows of the screen without the blank ones at the bottom. */
  onScreen(): TerminalRow[] {
    const { baseY } = this.#terminal.buffer.active
    const rows = this.#rows(baseY, baseY + CONSOLE_TERMINAL.rows)
    return rows.slice(0, rows.findLastIndex(({ cells }) => trimmed(cells).length > 0) + 1)
  }

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
