import type { Writable } from 'node:stream'
import type { Clock, Timer } from '../../../base/clock.ts'
import { Condition } from '../../../base/wait-queue.ts'
import { nameText, wordsText } from '../transcript-text.ts'
import { type WrappedLine, type TextStyle, closed, cutLine, cutTo, fromLeft, rowsOf, styled, textWidth } from './cells.ts'

/** The human's terminal, or whatever stands in its place. */
export type ScreenOutput = Writable & { readonly isTTY?: boolean; readonly columns?: number; readonly rows?: number }

/** Where lines are printed, one below the other. */
export interface Display {
  /** Never waits: whoever prints much waits for `ready`. */
  print(lines: readonly WrappedLine[]): void
  /** What `bottom` gives has changed. */
  changed(): void
  /** Settles when what was printed was taken, or nobody takes anything any more. */
  ready(): Promise<void>
  /** Draws all that is seen anew. */
  repaint(): void
  close(): Promise<void>
}

/** What moves below the printed lines. */
export interface Bottom {
  /** Rows of the command that may still change; the last of them matter most. */
  readonly live: readonly WrappedLine[]
  /** Rows that are always shown. */
  readonly fixed: readonly string[]
}

/** How often the lower rows are drawn at most. */
const DRAW_MS = 40
/** Drawn lines that a new size of the window draws again, in characters. */
const MAX_HISTORY = 64 * 1024
/** Lines that wait to be drawn, in characters; beyond, they are drawn at once. */
const MAX_UNSENT = 32 * 1024
const DEFAULT_COLUMNS = 80
const DEFAULT_ROWS = 24
const LEAST_COLUMNS = 8

/** Rows do not go on by themselves, and the cursor is not shown; and back. */
const BEGIN = '\u001b[?7l\u001b[?25l'
const END = '\u001b[m\u001b[?7h\u001b[?25h'

/** Waits for a stream that is full; ends when it is gone. */
class Taking {
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

  /** Everything was taken, or will never be. */
  async flushed(): Promise<void> {
    if (!this.isGone) await new Promise<void>((resolve) => this.#output.write('', () => resolve()))
  }
}

/** Lines and nothing else, for a file, a pipe, a terminal that moves no cursor, or a screen reader. */
export class PlainDisplay implements Display {
  readonly #output: ScreenOutput
  readonly #taking: Taking

  constructor(output: ScreenOutput) {
    this.#output = output
    this.#taking = new Taking(output, () => {})
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

/** In characters, with its end. */
const sizeOf = ({ text }: WrappedLine): number => text.length + 1

/** As many of the last lines as are drawn again. */
const lastOf = (lines: readonly WrappedLine[]): WrappedLine[] => {
  let size = 0
  return lines.slice(lines.findLastIndex((line) => (size += sizeOf(line)) > MAX_HISTORY) + 1)
}

/** Prints lines above some rows that are drawn anew: what is printed scrolls off as on any terminal. */
export class LiveDisplay implements Display {
  readonly #init: LiveDisplayInit
  readonly #taking: Taking
  readonly #resized = (): void => this.repaint()
  /** Printed, and not drawn yet. */
  #lines: WrappedLine[] = []
  #unsent = 0
  #history: WrappedLine[] = []
  #bottom: readonly string[] = []
  #timer: Timer | null = null
  #isStale = false
  /** Nothing of what is seen is where it was drawn. */
  #isMoved = false

  constructor(init: LiveDisplayInit) {
    this.#init = init
    this.#taking = new Taking(init.output, () => this.#draw())
    init.output.on('resize', this.#resized)
    this.#taking.write(BEGIN)
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
    return this.#taking.taken()
  }

  async close(): Promise<void> {
    while (this.#isStale && !this.#taking.isGone) {
      this.#draw()
      await this.#taking.taken()
    }
    this.#timer?.cancel()
    this.#init.output.off('resize', this.#resized)
    this.#taking.write(this.#erase() + END)
    this.#bottom = []
    await this.#taking.flushed()
  }

  #rows(lines: readonly WrappedLine[]): string[] {
    return lines.flatMap((line) => rowsOf(line, { columns: this.columns, careful: false }))
  }

  /** From wherever the cursor is in the lower rows, which is their end. */
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
    if (!this.#isStale || this.#taking.isFull) return
    this.#isStale = false
    const bottom = this.#lowerRows()
    const isSame = bottom.length === this.#bottom.length && bottom.every((row, at) => row === this.#bottom[at])
    if (this.#lines.length === 0 && isSame && !this.#isMoved) return
    const again = this.#isMoved ? this.#history.slice(-this.rows) : []
    const printed = this.#rows([...again, ...this.#lines]).map((row) => `${row}\r\n`)
    this.#taking.write(this.#erase() + printed.join('') + bottom.join('\r\n'))
    this.#history = lastOf([...this.#history, ...this.#lines])
    this.#lines = []
    this.#unsent = 0
    this.#bottom = bottom
    this.#isMoved = false
  }

  /** Whatever a window of other columns made of the rows that it shows, they are drawn again. */
  repaint(): void {
    this.#isMoved = true
    this.changed()
  }
}

export interface ScreenState {
  /** Whose output is being printed; null: nobody's. */
  readonly current: {
    readonly whoami: string
    readonly argv: readonly string[]
    readonly elapsed_ms: number
    readonly isOver: boolean
  } | null
  /** Behind it, in the order of arrival: those that run, and those that have ended. */
  readonly running: number
  readonly ended: number
  readonly paused: readonly string[]
}

const LEAST_COMMAND = 8

/** `12 s`, `4:05`, `2:04:05`: of equal width from second to second. */
const elapsedText = (ms: number): string => {
  const seconds = Math.floor(Math.max(0, ms) / 1000)
  if (seconds < 60) return `${seconds} s`
  const two = (value: number): string => String(value).padStart(2, '0')
  const minutes = Math.floor(seconds / 60)
  return minutes < 60 ? `${minutes}:${two(seconds % 60)}` : `${Math.floor(minutes / 60)}:${two(minutes % 60)}:${two(seconds % 60)}`
}

const behindText = ({ running, ended }: ScreenState): string[] => {
  const parts = [...(running > 0 ? [`${running} running`] : []), ...(ended > 0 ? [`${ended} done`] : [])]
  return parts.length === 0 ? [] : [`behind it: ${parts.join(', ')}`]
}

const pausedText = (paused: readonly string[], short: boolean): string[] =>
  paused.length === 0 ? [] : [short ? `${paused.length} paused` : `paused: ${paused.map(nameText).join(', ')}`]

/** What runs, for how long, what waits behind it and who is paused, in one row; where it is narrow, the words of the command go first. */
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
  const text = [closed(fromLeft(cutTo(what, Math.max(0, room(parts))))), ...parts].join(' · ')
  return columns < 2 ? '' : ` ${cutTo(text, columns - 2)} `
}

/** Across the whole row. */
export const barText = (text: string, columns: number, look: TextStyle): string =>
  styled(look, 'bar', cutTo(text, columns) + ' '.repeat(Math.max(0, columns - textWidth(text))))
