import type { Writable } from 'node:stream'
import type { Clock, Timer } from '../../../base/clock.ts'
import { Condition } from '../../../base/wait-queue.ts'
import { nameText, wordsText } from '../transcript-text.ts'
import { type WrappedLine, type TextStyle, isolated, cutLine, cutTo, startingLeft, rowsOf, styled, textWidth } from './cells.ts'

/** The operator's terminal, or the file or pipe used instead. */
export type ScreenOutput = Writable & { readonly isTTY?: boolean; readonly columns?: number; readonly rows?: number }

/** Prints lines, one below the other. */
export interface Display {
  /** Never waits. A caller that prints much awaits `ready` first. */
  print(lines: readonly WrappedLine[]): void
  /** Called when the result of `bottom` has changed. */
  changed(): void
  /** Settles when the output has taken all lines, or is gone. */
  ready(): Promise<void>
  /** Draws the whole visible screen again. */
  repaint(): void
  close(): Promise<void>
}

/** The rows below the printed lines, which are drawn again and again. */
export interface Bottom {
  /** Rows of the command that may still change. If there is little room, the last ones are shown. */
  readonly live: readonly WrappedLine[]
  /** Rows that are always shown. */
  readonly fixed: readonly string[]
}

/** Shortest time between two drawings of the lower rows. */
const DRAW_MS = 40
/** Characters of printed lines that are drawn again after a change of the window size. */
const MAX_HISTORY = 64 * 1024
/** Characters of lines that wait to be drawn. Above it, they are drawn at once. */
const MAX_UNSENT = 32 * 1024
const DEFAULT_COLUMNS = 80
const DEFAULT_ROWS = 24
const LEAST_COLUMNS = 8

/** Turns automatic wrapping and the cursor off; `END` turns them on. */
const BEGIN = '\u001b[?7l\u001b[?25l'
const END = '\u001b[m\u001b[?7h\u001b[?25h'

/** Waits until a full stream has drained or is gone. */
class OutputDrain {
  readonly #output: ScreenOutput
  readonly #waiters = new Condition()
  #isGone = false

  constructor(output: ScreenOutput, onDrain: () => void) {
    this.#output = output
    const gone = (): void => {
      this.#isGone = true
      this.#waiters.notifyAll()
    }
    output.on('error', gone)
    output.on('close', gone)
    output.on('drain', () => {
      this.#waiters.notifyAll()
      onDrain()
    })
  }

  get isGone(): boolean {
    return this.#isGone || this.#output.writableEnded
  }

  get isFull(): boolean {
    return this.#output.writableNeedDrain && !this.isGone
  }

  write(text: string): void {
    if (!this.isGone && text !== '') this.#output.write(text)
  }

  async taken(): Promise<void> {
    while (this.isFull) await this.#waiters.wait()
  }

  /** Settles when the stream has taken everything, or is gone. */
  async flushed(): Promise<void> {
    if (!this.isGone) await new Promise<void>((resolve) => this.#output.write('', () => resolve()))
  }
}

/** Prints only lines: for a file, a pipe, a terminal that cannot move its cursor, or a screen reader. */
export class PlainDisplay implements Display {
  readonly #output: ScreenOutput
  readonly #taking: OutputDrain

  constructor(output: ScreenOutput) {
    this.#output = output
    this.#taking = new OutputDrain(output, () => {})
  }

  print(lines: readonly WrappedLine[]): void {
    const columns = this.#output.isTTY === true ? Math.max(LEAST_COLUMNS, this.#output.columns ?? DEFAULT_COLUMNS) : Infinity
    this.#taking.write(lines.flatMap((line) => rowsOf(line, { columns, careful: true }).map((row) => `${row}\n`)).join(''))
  }

  changed(): void {}

  repaint(): void {}

  async ready(): Promise<void> {
    return this.#taking.taken()
  }

  async close(): Promise<void> {
    return this.#taking.flushed()
  }
}

export interface LiveDisplayInit {
  readonly output: ScreenOutput
  readonly clock: Clock
  readonly bottom: (columns: number) => Bottom
}

/** Characters of a line, with its line end. */
const sizeOf = ({ text }: WrappedLine): number => text.length + 1

/** The last lines, up to `MAX_HISTORY` characters. */
const lastOf = (lines: readonly WrappedLine[]): WrappedLine[] => {
  let size = 0
  return lines.slice(lines.findLastIndex((line) => (size += sizeOf(line)) > MAX_HISTORY) + 1)
}

/** Prints lines above live rows. Printed lines scroll off as on any terminal. */
export class LiveDisplay implements Display {
  readonly #init: LiveDisplayInit
  readonly #drain: OutputDrain
  readonly #resized = (): void => this.repaint()
  /** Lines that are not drawn yet. */
  #lines: WrappedLine[] = []
  #unsent = 0
  #history: WrappedLine[] = []
  #bottom: readonly string[] = []
  #timer: Timer | null = null
  #isStale = false
  /** The window has changed, so the positions of drawn rows are unknown. */
  #isMoved = false

  constructor(init: LiveDisplayInit) {
    this.#init = init
    this.#drain = new OutputDrain(init.output, () => this.#draw())
    init.output.on('resize', this.#resized)
    this.#drain.write(BEGIN)
    this.changed()
  }

  get columns(): number {
    return Math.max(LEAST_COLUMNS, this.#init.output.columns || DEFAULT_COLUMNS)
  }

  get rows(): number {
    return this.#init.output.rows || DEFAULT_ROWS
  }

  print(lines: readonly WrappedLine[]): void {
    this.#lines.push(...lines)
    for (const line of lines) this.#unsent += sizeOf(line)
    this.changed()
  }

  changed(): void {
    this.#isStale = true
    this.#timer ??= this.#init.clock.setTimeout(() => this.#draw(), DRAW_MS, { unref: true })
  }

  async ready(): Promise<void> {
    if (this.#unsent > MAX_UNSENT) this.#draw()
    return this.#drain.taken()
  }

  async close(): Promise<void> {
    while (this.#isStale && !this.#drain.isGone) {
      this.#draw()
      await this.#drain.taken()
    }
    this.#timer?.cancel()
    this.#init.output.off('resize', this.#resized)
    this.#drain.write(this.#erase() + END)
    this.#bottom = []
    await this.#drain.flushed()
  }

  #rows(lines: readonly WrappedLine[]): string[] {
    return lines.flatMap((line) => rowsOf(line, { columns: this.columns, careful: false }))
  }

  /** Erases the lower rows. The cursor is at their end. */
  #erase(): string {
    if (this.#isMoved) return '\u001b[H\u001b[J'
    return this.#bottom.length === 0 ? '' : `\r${this.#bottom.length > 1 ? `\u001b[${this.#bottom.length - 1}A` : ''}\u001b[J`
  }

  #lowerRows(): string[] {
    const { live, fixed } = this.#init.bottom(this.columns)
    const height = Math.max(1, this.rows - 1)
    const shown = fixed.slice(-height).map((row) => cutLine(row, this.columns))
    const room = height - shown.length
    return [...(room > 0 ? this.#rows(live).slice(-room) : []), ...shown]
  }

  #draw(): void {
    this.#timer?.cancel()
    this.#timer = null
    if (!this.#isStale || this.#drain.isFull) return
    this.#isStale = false
    const bottom = this.#lowerRows()
    const isSame = bottom.length === this.#bottom.length && bottom.every((row, at) => row === this.#bottom[at])
    if (this.#lines.length === 0 && isSame && !this.#isMoved) return
    const again = this.#isMoved ? this.#history.slice(-this.rows) : []
    const printed = this.#rows([...again, ...this.#lines]).map((row) => `${row}\r\n`)
    this.#drain.write(this.#erase() + printed.join('') + bottom.join('\r\n'))
    this.#history = lastOf([...this.#history, ...this.#lines])
    this.#lines = []
    this.#unsent = 0
    this.#bottom = bottom
    this.#isMoved = false
  }

  /** Draws everything again, because a resized window has wrapped the old rows in an unknown way. */
  repaint(): void {
    this.#isMoved = true
    this.changed()
  }
}

export interface ScreenState {
  /** The command whose output is printed, or null. */
  readonly current: {
    readonly whoami: string
    readonly argv: readonly string[]
    readonly elapsed_ms: number
    readonly isOver: boolean
  } | null
  /** Later commands that run, and those that have ended. */
  readonly running: number
  readonly ended: number
  readonly paused: readonly string[]
}

const LEAST_COMMAND = 8

/** `12 s`, `4:05` or `2:04:05`, so that the width rarely changes. */
const elapsedText = (ms: number): string => {
  const seconds = Math.floor(Math.max(0, ms) / 1000)
  if (seconds < 60) return `${seconds} s`
  const two = (value: number): string => String(value).padStart(2, '0')
  const minutes = Math.floor(seconds / 60)
  return minutes < 60 ? `${minutes}:${two(seconds % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`
}

const behindText = ({ running, ended }: ScreenState): string[] => {
  const parts = [...(running > 0 ? [`${running} running`] : []), ...(ended > 0 ? [`${ended} done`] : [])]
  return parts.length === 0 ? [] : [`next: ${parts.join(', ')}`]
}

const pausedText = (paused: readonly string[], short: boolean): string[] =>
  paused.length === 0 ? [] : [short ? `${paused.length} paused` : `paused: ${paused.map(nameText).join(', ')}`]

/** The status row: running command, elapsed time, later commands and paused agents. A narrow row cuts the command first. */
export const statusText = (state: ScreenState, columns: number): string => {
  const { current } = state
  const elapsed = current === null ? [] : [current.isOver ? 'done' : elapsedText(current.elapsed_ms)]
  const variants = [
    [...elapsed, ...behindText(state), ...pausedText(state.paused, false), '? help'],
    [...elapsed, ...behindText(state), ...pausedText(state.paused, true), '? help'],
    [...elapsed, ...behindText(state), ...pausedText(state.paused, true)],
    elapsed,
  ]
  const room = (parts: readonly string[]): number => columns - 2 - textWidth(parts.map((part) => ` · ${part}`).join(''))
  const parts = variants.find((one) => room(one) >= LEAST_COMMAND) ?? []
  const what = current === null ? 'nothing runs' : `${nameText(current.whoami)}: ${wordsText(current.argv)}`
  const text = [isolated(startingLeft(cutTo(what, Math.max(0, room(parts))))), ...parts].join(' · ')
  return columns < 2 ? '' : ` ${cutTo(text, columns - 2)} `
}

/** A text in reverse video that fills the row. */
export const barText = (text: string, columns: number, look: TextStyle): string =>
  styled(look, 'bar', cutTo(text, columns) + ' '.repeat(Math.max(0, columns - textWidth(text))))
