import { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

import xterm, { type IModes } from '@xterm/headless'

/** The terminal in front of a human: holds what it is made to show, and what it would type by itself. */
export class HumanTerminal extends Writable {
  readonly isTTY = true
  columns: number
  rows: number
  /** Answers to questions, which a program would read as typed. */
  answers = ''
  titles: string[] = []
  bells = 0
  #isHeld = false
  #held: () => void = () => {}
  readonly #terminal: InstanceType<typeof xterm.Terminal>

  constructor(init: { columns?: number; rows?: number } = {}) {
    super({ highWaterMark: 16 * 1024 })
    this.columns = init.columns ?? 80
    this.rows = init.rows ?? 24
    this.#terminal = new xterm.Terminal({
      cols: this.columns,
      rows: this.rows,
      scrollback: 200_000,
      allowProposedApi: true,
      convertEol: true,
      logLevel: 'off',
    })
    this.#terminal.onData((data) => (this.answers += data))
    this.#terminal.onTitleChange((title) => this.titles.push(title))
    this.#terminal.onBell(() => (this.bells += 1))
  }

  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    if (this.#isHeld) this.#held = () => this._write(chunk, _encoding, done)
    else this.#terminal.write(chunk, done)
  }

  /** Takes nothing more. */
  hold(): void {
    this.#isHeld = true
  }

  goOn(): void {
    this.#isHeld = false
    this.#held()
    this.#held = () => {}
  }

  /** Another size of the window. */
  resize(columns: number, rows: number): void {
    this.columns = columns
    this.rows = rows
    this.#terminal.resize(columns, rows)
    this.emit('resize')
  }

  /** Everything from the first line on, without blanks at the ends of lines. */
  lines(): string[] {
    const { active } = this.#terminal.buffer
    const all = Array.from({ length: active.length }, (_none, at) => active.getLine(at)?.translateToString(true) ?? '')
    return all.slice(0, all.findLastIndex((line) => line !== '') + 1)
  }

  /** What is seen now. */
  seen(): string[] {
    const { active } = this.#terminal.buffer
    return Array.from({ length: this.rows }, (_none, at) => active.getLine(active.baseY + at)?.translateToString(true) ?? '')
  }

  get isAlternate(): boolean {
    return this.#terminal.buffer.active.type === 'alternate'
  }

  get modes(): IModes {
    return this.#terminal.modes
  }

  /** SGR of the cell where the next text would go is the default. */
  async leavesNoColour(): Promise<boolean> {
    await new Promise<void>((resolve) => this.#terminal.write('\u001b[1;1Hx', resolve))
    return this.#terminal.buffer.active.getLine(this.#terminal.buffer.active.baseY)?.getCell(0)?.isAttributeDefault() === true
  }

  /** Settles when a line is seen that holds the text. */
  async shows(text: string | RegExp): Promise<string> {
    for (;;) {
      const line = this.lines().find((line) => (typeof text === 'string' ? line.includes(text) : text.test(line)))
      if (line !== undefined) return line
      await sleep(10)
    }
  }
}
