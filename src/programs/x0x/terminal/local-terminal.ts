import { writeSync } from 'node:fs'
import type { Readable } from 'node:stream'
import type { Output } from '../../../cli/output.ts'
import { MAX_MESH_TERMINAL_SIDE } from '../../../protocol/limits/terminal.ts'

export interface LocalSize {
  readonly columns: number
  readonly rows: number
}

/** Streams of the terminal, or of other programs with `-tt`. */
export interface LocalTerminalIo {
  readonly stdin: Readable & { readonly isTTY?: boolean; setRawMode?(raw: boolean): unknown }
  readonly stdout: Output & { readonly rows?: number }
  readonly stderr: Output & { readonly rows?: number }
}

/** Size without a local terminal. */
const USUAL_SIZE: LocalSize = { columns: 80, rows: 24 }

const side = (value: number | undefined, usual: number): number =>
  value === undefined || value < 1 ? usual : Math.min(value, MAX_MESH_TERMINAL_SIDE)

/** The user's terminal: raw while a remote program has it, and as before at every end of this process except SIGKILL. */
export class LocalTerminal {
  readonly #io: LocalTerminalIo
  /** Undoes what the program changed. */
  readonly #undo: () => string
  readonly #onExit = (): void => this.#restoreNow()
  readonly #onContinue = (): void => void this.#io.stdin.setRawMode?.(true)
  #isRaw = false

  constructor(io: LocalTerminalIo, init: { readonly undo: () => string }) {
    this.#io = io
    this.#undo = init.undo
  }

  get size(): LocalSize {
    const { stdout, stderr } = this.#io
    const { columns, rows } = stdout.isTTY === true ? stdout : stderr
    return { columns: side(columns, USUAL_SIZE.columns), rows: side(rows, USUAL_SIZE.rows) }
  }

  /** Calls `listener` after each change of the size, until the returned function is called. */
  onResize(listener: () => void): () => void {
    const { stdout, stderr } = this.#io
    const output = stdout.isTTY === true ? stdout : stderr
    output.on('resize', listener)
    return () => void output.off('resize', listener)
  }

  /** From now on, all keys go to the program. */
  enterRaw(): void {
    if (this.#io.stdin.isTTY !== true) return
    this.#isRaw = true
    // A terminal that is gone cannot be restored.
    this.#io.stdin.on('error', () => undefined)
    process.on('exit', this.#onExit)
    // A shell sets its own modes while this process is stopped.
    process.on('SIGCONT', this.#onContinue)
    this.#io.stdin.setRawMode?.(true)
  }

  /** Restores the modes. Returns text that undoes what the program changed on the screen. */
  restore(): string {
    if (!this.#isRaw) return ''
    this.#isRaw = false
    process.off('exit', this.#onExit)
    process.off('SIGCONT', this.#onContinue)
    this.#io.stdin.setRawMode?.(false)
    return this.#io.stdout.isTTY === true ? this.#undo() : ''
  }

  /** The process ends in this turn, after an uncaught error for example. */
  #restoreNow(): void {
    try {
      const text = this.restore()
      if (text !== '') writeSync(1, text)
    } catch {
      // The terminal is gone.
    }
  }
}
