import { posix } from 'node:path'
import { attempt } from '../base/errors.ts'
import { realPath } from '../base/path-resolution.ts'
import { isTransparentFile, isTransparentName } from './approval/transparent.ts'
import { findExecutable } from './executable.ts'

/** Programs that run the file which their words name, by their usual names. */
const INTERPRETERS: ReadonlySet<string> = new Set(
  (
    'sh bash rbash dash ash zsh ksh mksh fish csh tcsh pwsh python pypy perl ruby node nodejs bun deno lua luajit php tclsh ' +
    'wish expect osascript tsx ts-node R Rscript julia guile irb ghci groovy jjs jrunscript jshell gdb lldb bc dc m4'
  ).split(' '),
)

/** The name that a program is known by: `/usr/bin/python3.12` is python. */
const programName = (called: string): string => {
  const base = posix.basename(called)
  // A script of somebody's own is not what it is called after.
  if (INTERPRETERS.has(base) || /\.(sh|bash|py|pl|rb|js)$/.test(base)) return base
  return base.replace(/-?[0-9].*$|\..*$/, '')
}

/** The interpreter that this word names, on a file system that tells no upper case from lower, too; null: none. */
export const interpreterCalled = (word: string): string | null =>
  [word, word.toLowerCase()].map(programName).find((name) => INTERPRETERS.has(name)) ?? null

const realOf = (argv0: string): string | null => {
  const lookup = findExecutable(argv0)
  return lookup.kind === 'found' ? attempt(() => realPath(lookup.executable.path)) : null
}

/** The usual name of an interpreter of scripts, by its name or by the file that it leads to on this host; null for what is none. */
export const interpreterName = (argv0: string): string | null => interpreterCalled(argv0) ?? interpreterCalled(realOf(argv0) ?? '')

/** True unless the program is one whose words say all that it does, or what `isKnown` knows. Of one that is not installed, its name alone counts. */
export const mayRunOthers = (argv0: string, isKnown = isTransparentFile): boolean => {
  const real = realOf(argv0)
  return real === null ? !isTransparentName(argv0) : !isKnown(argv0, real)
}

/** What to note of a command that may do more than its words say; null: it does what they say. */
export const opaqueNote = (argv0: string, stdinOpen: boolean): string | null => {
  if (!mayRunOthers(argv0)) return null
  const stdin = stdinOpen ? ', and may take commands from the stdin that the requester sends (stdin = false closes it)' : ''
  return `${posix.basename(argv0)} may start other programs, or run code that its words do not show${stdin}`
}
