import { posix } from 'node:path'
import { attempt } from '../base/errors.ts'
import { realPath } from '../base/path-resolution.ts'
import { isTransparentFile, isTransparentName } from './approval/transparent.ts'
import { findExecutable } from './executable.ts'

/** Usual names of programs that run a file given as an argument. */
const INTERPRETERS: ReadonlySet<string> = new Set(
  (
    'sh bash rbash dash ash zsh ksh mksh fish csh tcsh pwsh python pypy perl ruby node nodejs bun deno lua luajit php tclsh ' +
    'wish expect osascript tsx ts-node R Rscript julia guile irb ghci groovy jjs jrunscript jshell gdb lldb bc dc m4'
  ).split(' '),
)

/** Name without version: `/usr/bin/python3.12` is python. */
const programName = (called: string): string => {
  const base = posix.basename(called)
  // The name of a script says nothing about its interpreter.
  if (INTERPRETERS.has(base) || /\.(sh|bash|py|pl|rb|js)$/.test(base)) return base
  return base.replace(/-?[0-9].*$|\..*$/, '')
}

/** The interpreter that this argument names, also on a file system that ignores case, or null if none. */
export const interpreterCalled = (word: string): string | null =>
  [word, word.toLowerCase()].map(programName).find((name) => INTERPRETERS.has(name)) ?? null

const realOf = (argv0: string): string | null => {
  const lookup = findExecutable(argv0)
  return lookup.kind === 'found' ? attempt(() => realPath(lookup.executable.path)) : null
}

/** Usual name of an interpreter, by its name or the file behind it on this host, or null if it is none. */
export const interpreterName = (argv0: string): string | null => interpreterCalled(argv0) ?? interpreterCalled(realOf(argv0) ?? '')

/** True unless the program is transparent or `isKnown` accepts it. For a missing program, its name decides. */
export const mayRunOthers = (argv0: string, isKnown = isTransparentFile): boolean => {
  const real = realOf(argv0)
  return real === null ? !isTransparentName(argv0) : !isKnown(argv0, real)
}

/** A note about a command that may do more than its arguments show, or null if it does not. */
export const opaqueNote = (argv0: string, stdinOpen: boolean): string | null => {
  if (!mayRunOthers(argv0)) return null
  const stdin = stdinOpen ? ', and may take commands from the stdin that the requester sends (stdin = false closes it)' : ''
  return `${posix.basename(argv0)} may start other programs, or run code that its words do not show${stdin}`
}
