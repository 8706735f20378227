import { fileURLToPath } from 'node:url'

import type { TerminalSize } from '../policy/permit.ts'
import { loadPty } from './native-pty.ts'

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
  const fromSources = import.meta.url.endsWith('.ts')
  const host = fileURLToPath(new URL(fromSources ? './terminal-main.ts' : './terminal-host.mjs', import.meta.url))
  // A main module does nothing when it is imported; a bundle calls its own.
  const text = `import { main } from ${JSON.stringify(host)}; process.exit(await main(process.argv.slice(1)))`
  const program = fromSources ? ['--input-type=module', '--eval', text, '--'] : [host]
  return [process.execPath, ...program, String(control), String(cols), String(rows)]
}
