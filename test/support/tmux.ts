import { execFile, spawnSync } from 'node:child_process'
import { mkdtemp, realpath, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { promisify } from 'node:util'

import { until } from './processes.ts'

/** Why tests of a real terminal are skipped, or false. */
export const NO_TMUX: string | false = spawnSync('tmux', ['-V']).status === 0 ? false : 'there is no tmux'

export interface Pane {
  readonly env: Readonly<Record<string, string>>
  readonly argv: readonly string[]
  readonly columns?: number
  readonly rows?: number
}

/** A program in a real terminal of a separate tmux. It ends with its test, before anything that was created later. */
export class Tmux {
  readonly #dir: string
  /** The session of the program. Null if it did not begin. */
  #session: string | null = null

  private constructor(dir: string) {
    this.#dir = dir
  }

  static async make(t: TestContext): Promise<Tmux> {
    const tmux = new Tmux(await mkdtemp(join(await realpath(tmpdir()), 'x0x-tmux-')))
    t.after(async () => tmux.close())
    return tmux
  }

  async begin({ env, argv, columns = 80, rows = 24 }: Pane): Promise<void> {
    const all = { ...env, TERM: 'xterm-256color', LANG: 'C.UTF-8', SHELL: '/bin/sh' }
    const size = ['-x', String(columns), '-y', String(rows)]
    await promisify(execFile)('tmux', ['-S', this.#socket, '-f', '/dev/null', 'new-session', '-d', ...size, '--', ...argv], { env: all })
    this.#session = await this.variable('pane_pid')
  }

  get #socket(): string {
    return join(this.#dir, 's')
  }

  async #do(...words: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)('tmux', ['-S', this.#socket, ...words])
    return stdout
  }

  /** Closes the terminal, as a user closes a window. Waits until no process of its session remains. */
  async close(): Promise<void> {
    const session = this.#session
    this.#session = null
    if (session !== null) {
      await this.#do('kill-server').catch(() => undefined)
      await until(() => spawnSync('pgrep', ['-s', session]).status === 1)
    }
    await rm(this.#dir, { recursive: true, force: true })
  }

  /** All lines of the terminal, with those that have scrolled off. */
  async lines(): Promise<string[]> {
    const text = await this.#do('capture-pane', '-p', '-S', '-', '-t', '0')
    return text.split('\n').map((line) => line.trimEnd())
  }

  /** Resolves with all lines when one of them matches. */
  async shows(wanted: RegExp): Promise<string[]> {
    let lines: string[] = []
    await until(async () => {
      lines = await this.lines()
      return lines.some((line) => wanted.test(line))
    })
    return lines
  }

  /** Presses one key by its tmux name. Wait for its effect before the next key, because two keys at once count as pasted text. */
  async press(key: string): Promise<void> {
    await this.#do('send-keys', '-t', '0', key)
  }

  /** Changes the size of the window. */
  async resize(columns: number, rows: number): Promise<void> {
    await this.#do('resize-window', '-t', '0', '-x', String(columns), '-y', String(rows))
  }

  /** A variable of the pane, such as `pane_title`. */
  async variable(name: string): Promise<string> {
    return (await this.#do('display-message', '-p', '-t', '0', `#{${name}}`)).trimEnd()
  }
}
