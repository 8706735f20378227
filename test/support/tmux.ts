import { execFile, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import type { TestContext } from 'node:test'
import { promisify } from 'node:util'

import { until } from './processes.ts'

/** Why tests of a real terminal are skipped here; false: they run. */
export const NO_TMUX: string | false = spawnSync('tmux', ['-V']).status === 0 ? false : 'there is no tmux'

/** One program in a real terminal, of a tmux that nobody else uses. */
export class Tmux {
  readonly #socket: string
  readonly #env: Record<string, string>

  private constructor(socket: string, env: Record<string, string>) {
    this.#socket = socket
    this.#env = env
  }

  static async begin(
    t: TestContext,
    {
      dir,
      env,
      argv,
      columns = 80,
      rows = 24,
    }: { dir: string; env: Record<string, string>; argv: readonly string[]; columns?: number; rows?: number },
  ): Promise<Tmux> {
    const tmux = new Tmux(join(dir, 'tmux'), { ...env, TERM: 'xterm-256color', LANG: 'C.UTF-8', SHELL: '/bin/sh' })
    await tmux.do('-f', '/dev/null', 'new-session', '-d', '-x', String(columns), '-y', String(rows), 'sh')
    t.after(async () => {
      await tmux.do('kill-server').catch(() => undefined)
    })
    // A window that stays when the program has ended shows what it left.
    await tmux.do('set-option', '-g', 'remain-on-exit', 'on')
    await tmux.do('set-option', '-g', 'history-limit', '20000')
    await tmux.do('respawn-pane', '-k', '-t', '0', '--', ...argv)
    return tmux
  }

  async do(...words: string[]): Promise<string> {
    const { stdout } = await promisify(execFile)('tmux', ['-S', this.#socket, ...words], { env: this.#env })
    return stdout
  }

  /** What is seen now; with all that has scrolled off. */
  async lines(): Promise<string[]> {
    const text = await this.do('capture-pane', '-p', '-S', '-', '-t', '0')
    return text.split('\n').map((line) => line.trimEnd())
  }

  /** Resolves with the lines when one of them fits. */
  async shows(wanted: RegExp): Promise<string[]> {
    let lines: string[] = []
    await until(async () => {
      lines = await this.lines()
      return lines.some((line) => wanted.test(line))
    })
    return lines
  }

  async press(...keys: string[]): Promise<void> {
    for (const key of keys) await this.do('send-keys', '-t', '0', key)
  }

  /** A variable of the pane, such as `pane_title`. */
  async variable(name: string): Promise<string> {
    return (await this.do('display-message', '-p', '-t', '0', `#{${name}}`)).trimEnd()
  }
}
