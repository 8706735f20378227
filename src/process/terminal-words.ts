import { createRequire } from 'node:module'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { attempt } from '../base/errors.ts'
import type { Terminal } from '../policy/permit.ts'
import { isOneFile } from './held-module.ts'
import { PTY_PACKAGE } from './native-pty.ts'

/** Our sources run as they are, or a bundle does. Looked at when it is needed: the command line's bundle has no URL, and no terminals. */
const placeOf = (): { readonly fromSources: boolean; readonly host: string } => {
  const fromSources = import.meta.url.endsWith('.ts')
  return { fromSources, host: fileURLToPath(new URL(fromSources ? './terminal-main.ts' : './terminal-host.cjs', import.meta.url)) }
}

/**
 * The words that go before a program so that it runs on a terminal: a process of its own for each, because the open end
 * of a terminal would be inherited by whatever its owner starts later. `control`: a descriptor on which sizes come, and
 * before them the environment of a program on a raw terminal.
 */
export const terminalWords = ({ cols, rows, raw = false }: Terminal, control: number): string[] => {
  const { fromSources, host } = placeOf()
  // A main module does nothing when it is imported; a bundle calls its own.
  const text = `import { main } from ${JSON.stringify(host)}; process.exit(await main(process.argv.slice(1)))`
  const program = fromSources ? ['--input-type=module', '--eval', text, '--'] : [host]
  return [process.execPath, ...program, raw ? 'raw' : 'cooked', String(control), String(cols), String(rows)]
}

/** What that process reads of this host besides the system's own: the runtime, its program, and the native part. */
export const terminalFiles = (): string[] => {
  const { fromSources, host } = placeOf()
  // One file has them inside.
  if (isOneFile()) return [process.execPath]
  const packages = attempt(() => dirname(dirname(createRequire(import.meta.url).resolve(`${PTY_PACKAGE}/requireBinary.js`))))
  const root = fileURLToPath(new URL('../..', import.meta.url))
  const program = fromSources ? [join(root, 'src'), join(root, 'package.json')] : [host]
  return [process.execPath, ...program, ...(packages === null ? [] : [packages])]
}
