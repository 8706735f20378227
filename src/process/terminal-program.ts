import { existsSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'

import type { TerminalSize } from '../policy/permit.ts'
import { loadPty } from './native-pty.ts'

/** In the bundle beside us, or from the sources. */
const HOST_FILES = ['terminal-host.mjs', 'terminal-main.ts']

/** Why nothing can have a terminal here; null: it can. */
export const terminalProblem = (): string | null => {
  const pty = loadPty()
  return 'problem' in pty ? pty.problem : null
}

/**
 * The words that go before a program so that it runs on a terminal: a process of its own for each, because the open end
 * of a terminal would be inherited by whatever its owner starts later. `control`: a descriptor on which sizes come.
 */
export const terminalWords = ({ cols, rows }: TerminalSize, control: number): string[] => {
  const here = dirname(fileURLToPath(import.meta.url))
  const host = HOST_FILES.map((file) => join(here, file)).find((file) => existsSync(file)) ?? HOST_FILES[0]!
  return [process.execPath, host, String(control), String(cols), String(rows)]
}
