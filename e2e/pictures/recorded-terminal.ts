import { setTimeout as sleep } from 'node:timers/promises'

import { spawn, type IPty } from '@lydell/node-pty'
import xterm from '@xterm/headless'

import { rowOf, textOf, type Cell } from './screen.ts'

/** More rows than any scene prints, so that nothing scrolls away. */
const ROWS = 160
const PATIENCE_MS = 30_000
const LOOK_MS = 20

/** A shell on its own terminal, into which a scene types. */
export class RecordedTerminal {
  readonly #columns: number
  readonly #prompt: string
  readonly #pty: IPty
  readonly #screen: InstanceType<typeof xterm.Terminal>

  constructor(init: { readonly who: string; readonly env: Readonly<Record<string, string>>; readonly columns: number }) {
    this.#columns = init.columns
    this.#prompt = `${init.who}$`
    this.#screen = new xterm.Terminal({ cols: init.columns, rows: ROWS, allowProposedApi: true })
    const env: Record<string, string> = { ...init.env, PS1: `${this.#prompt} `, TERM: 'xterm-256color', LANG: 'C.UTF-8', LC_ALL: 'C.UTF-8' }
    const size = { cols: init.columns, rows: ROWS }
    this.#pty = spawn('bash', ['--norc', '--noprofile', '--noediting'], { name: 'xterm-256color', ...size, cwd: env['HOME'] ?? '/', env })
    this.#pty.onData((data) => this.#screen.write(data))
  }

  type(keys: string): void {
    this.#pty.write(keys)
  }

  /** Resolves when the last row that is not empty matches. */
  async shows(pattern: RegExp): Promise<void> {
    const deadline = performance.now() + PATIENCE_MS
    while (!pattern.test(this.#lastLine())) {
      if (performance.now() > deadline) throw new Error(`${pattern} is not shown:\n${this.rows().map(textOf).join('\n')}`)
      await sleep(LOOK_MS)
    }
  }

  /** Resolves when a prompt is shown in another row than this one. */
  async prompted(row = 0): Promise<void> {
    while (this.rows().length <= row) await sleep(LOOK_MS)
    await this.shows(new RegExp(`^${this.#prompt.replace('$', String.raw`\$`)} ?$`))
  }

  /** Visible rows, from the first to the last that is not empty. */
  rows(): Cell[][] {
    const { active } = this.#screen.buffer
    const rows = Array.from({ length: ROWS }, (_none, at) => rowOf(active.getLine(active.baseY + at), this.#columns))
    return rows.slice(0, rows.findLastIndex((row) => textOf(row) !== '') + 1)
  }

  close(): void {
    this.#pty.kill()
    this.#screen.dispose()
  }

  #lastLine(): string {
    const row = this.rows().at(-1)
    if (row === undefined) return ''
    return (
      row
        .map(({ text }) => text)
        .join('')
        .trimEnd() + ' '
    )
  }
}
