import { Writable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'

import xterm, { type IModes } from '@xterm/headless'

/** A user's terminal. It holds the displayed text, and the answers that a terminal sends without the user. */
export class HumanTerminal extends Writable {
  readonly isTTY = true
  columns: number
  rows: number
  /** Answers to terminal queries, which a program would read as typed input. */
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

  /** Stops reading. */
  hold(): void {
    this.#isHeld = true
  }

  goOn(): void {
    this.#isHeld = false
    this.#held()
    this.#held = () => {}
  }

  /** Changes the size of the window. */
  resize(columns: number, rows: number): void {
    this.columns = columns
    this.rows = rows
    this.#terminal.resize(columns, rows)
    this.emit('resize')
  }

  /** All lines from the first one on, without trailing blanks. */
  lines(): string[] {
    const { active } = this.#terminal.buffer
    const all = Array.from({ length: active.length }, (_none, at) => active.getLine(at)?.translateToString(true) ?? '')
    return all.slice(0, all.findLastIndex((line) => line !== '') + 1)
  }

  /** The visible lines. */
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

  /** True if the next character would have the default colours and attributes. */
  async leavesNoColour(): Promise<boolean> {
    await new Promise<void>((resolve) => this.#terminal.write('\u001b[1;1Hx', resolve))
    return this.#terminal.buffer.active.getLine(this.#terminal.buffer.active.baseY)?.getCell(0)?.isAttributeDefault() === true
  }

  /** Waits until a line contains the text, and returns the line. */
  async shows(text: string | RegExp): Promise<string> {
    for (;;) {
      const line = this.lines().find((line) => (typeof text === 'string' ? line.includes(text) : text.test(line)))
      if (line !== undefined) return line
      await sleep(10)
    }
  }
}
