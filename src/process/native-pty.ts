import { createRequire } from 'node:module'
import { errorText } from '../base/errors.ts'
import { heldModule } from './held-module.ts'

/** What `@lydell/node-pty` has below its own classes, which end a terminal with output unread (its version is pinned for that). */
export interface NativePty {
  fork(
    file: string,
    args: readonly string[],
    env: readonly string[],
    cwd: string,
    cols: number,
    rows: number,
    uid: number,
    gid: number,
    utf8: boolean,
    helper: string,
    onExit: (code: number, signal: number) => void,
  ): { readonly fd: number; readonly pid: number; readonly pty: string }
  /** Both ends of a terminal, open without close-on-exec; `pty` is the path of `slave`. */
  open(cols: number, rows: number): { readonly master: number; readonly slave: number; readonly pty: string }
  resize(fd: number, cols: number, rows: number): void
}

export const PTY_PACKAGE = '@lydell/node-pty'
const PTY_BINARY = 'pty.node'

const isNative = (thing: unknown): thing is NativePty =>
  typeof thing === 'object' &&
  thing !== null &&
  ['fork', 'open', 'resize'].every((name) => typeof (thing as Record<string, unknown>)[name] === 'function')

const installed = (require: NodeJS.Require): unknown => {
  const { requireBinary } = require(`${PTY_PACKAGE}/requireBinary.js`) as { requireBinary: (file: string) => unknown }
  return requireBinary(PTY_BINARY)
}

/** The native part, and the program that it starts others by where it needs one; or why there is none. */
export const loadPty = (): { readonly native: NativePty; readonly helper: string } | { readonly problem: string } => {
  try {
    const require = createRequire(import.meta.url)
    const native = heldModule(PTY_BINARY) ?? installed(require)
    if (!isNative(native)) return { problem: `${PTY_PACKAGE} is of a version that is not known here` }
    const darwin = process.platform === 'darwin'
    return { native, helper: darwin ? require.resolve(`${PTY_PACKAGE}-darwin-${process.arch}/spawn-helper`) : 'none' }
  } catch (error) {
    return { problem: `a terminal needs the package ${PTY_PACKAGE}: npm install ${PTY_PACKAGE} (${errorText(error).split('\n')[0]})` }
  }
}

/** Why nothing can have a terminal here; null: it can. */
export const terminalProblem = (): string | null => {
  const pty = loadPty()
  return 'problem' in pty ? pty.problem : null
}
