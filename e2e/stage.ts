import { stdout } from 'node:process'

import { table } from '../src/programs/x0x/print.ts'

const CODES = { bold: 1, dim: 2, red: 31, green: 32, yellow: 33, cyan: 36 } as const
const coloured = stdout.isTTY && !process.env['NO_COLOR'] && process.env['TERM'] !== 'dumb'
const paint = (style: keyof typeof CODES, text: string): string => (coloured ? `\u001b[${CODES[style]}m${text}\u001b[0m` : text)

/** Column of the durations. */
const WIDTH = 92
const MAX_SHOWN_LINES = 8
const MAX_SHOWN = 112

const duration = (ms: number): string => (ms < 1000 ? `${Math.round(ms)} ms` : `${(ms / 1000).toFixed(1)} s`)

/** Prints the steps of the demo, and counts which expectations were met. */
export class Stage {
  #met = 0
  #failed = 0
  readonly #began = performance.now()

  get failed(): number {
    return this.#failed
  }

  title(name: string, text: string): void {
    stdout.write(`\n  ${paint('bold', name)}  ${paint('dim', text)}\n`)
  }

  section(text: string): void {
    stdout.write(`\n  ${paint('cyan', text)}\n`)
  }

  note(text: string): void {
    stdout.write(`    ${paint('dim', text)}\n`)
  }

  rows(rows: readonly (readonly string[])[]): void {
    const [, ...lines] = table(rows[0]?.map(() => '') ?? [], rows)
    for (const line of lines) this.note(line)
  }

  /** A command as a user typed it, and its output. */
  command(who: string, line: string, output: string): void {
    stdout.write(`\n    ${paint('dim', `${who}$`)} ${paint('bold', line)}\n`)
    const lines = output
      .trimEnd()
      .split('\n')
      .filter((text) => text !== '')
    for (const text of lines.slice(0, MAX_SHOWN_LINES))
      stdout.write(`    ${text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN - 1)}…` : text}\n`)
    if (lines.length > MAX_SHOWN_LINES) this.note(`… ${lines.length - MAX_SHOWN_LINES} more lines`)
  }

  /** One expectation. */
  expect(text: string, met: boolean, ms?: number): void {
    if (met) this.#met++
    else this.#failed++
    const mark = met ? paint('green', '✓') : paint('red', '✗')
    const time = ms === undefined ? '' : paint('dim', `  ${duration(ms).padStart(WIDTH - text.length - 2)}`)
    stdout.write(`  ${mark} ${text}${time}\n`)
  }

  /** Prints the summary. */
  close(): void {
    const time = duration(performance.now() - this.#began)
    const count = this.#met + this.#failed
    stdout.write(
      this.#failed === 0
        ? `\n  ${paint('green', `✓ all ${count} expectations met`)}  ${paint('dim', time)}\n\n`
        : `\n  ${paint('red', `✗ ${this.#failed} of ${count} expectations not met`)}  ${paint('dim', time)}\n\n`,
    )
  }
}
