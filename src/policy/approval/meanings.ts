import { statSync } from 'node:fs'
import { basename, isAbsolute } from 'node:path'
import { attempt } from '../../base/errors.ts'
import { namesOf, realPath, resolveSteps } from '../../base/path-resolution.ts'
import { isHarmless } from '../environment.ts'
import { interpreterCalled } from '../escapes.ts'
import { finderIn } from '../executable.ts'
import type { Executable } from '../permit.ts'
import { isUnderstood, scriptOf } from '../scripts.ts'
import { isTransparentFile, isTransparentName } from './transparent.ts'

/** An argument of a command, or null if it is unknown before the run. */
export type Word = string | null

/** Maximum number of arguments compared with rules, because the client chooses how many it sends. */
const MAX_WORDS = 4_096
/** Maximum number of words that are looked up as programs. */
const MAX_LOOKED_FOR = 64
/** Linux accepts no longer path, and no longer file name (limits.h). */
const MAX_PATH = 4_096
const MAX_NAME = 255

/** Surroundings of a command, in which its names and paths are looked up. */
export interface Surroundings {
  /** Working directory, or null if unknown. */
  readonly cwd: string | null
  /** PATH, or null for another host or an image, whose files are unknown on this host. */
  readonly path: string | null
}

/** A program as its name finds it, with the path behind its links. */
export interface ProgramFile extends Executable {
  readonly real: string
}

/** The programs and scripts that a command runs, as far as its arguments show. */
export interface Meaning {
  /** The arguments, at most `MAX_WORDS`. */
  readonly argv: readonly Word[]
  /** True if further, unknown arguments may follow. */
  readonly open: boolean
  /** The program's file, or null if it does not exist or is on another host. */
  readonly file: ProgramFile | null
  /** Absolute paths of the scripts that interpreters among the arguments run. */
  readonly scripts: readonly string[]
  /** Index of an interpreter with unknown options, so that it may run any file after it, or null if absent. */
  readonly unsure: number | null
  /** Programs among the other arguments, with their index. */
  readonly others: readonly (ProgramFile & { readonly at: number })[]
  /** Why the command may run more than its arguments show, or null if they show all. */
  readonly opaque: string | null
  /** False if not even the command's own files are known, so that no allowlist and no grant can cover it. */
  readonly isTold: boolean
}

/**
 * Finds what a command runs, by its arguments and the files that they name. `variables` are the names that the client sets. With `open`,
 * further arguments may follow.
 */
export const meaningOf = (argv: readonly Word[], variables: readonly string[], around: Surroundings, open = false): Meaning => {
  const [called, ...rest] = argv.slice(0, MAX_WORDS)
  const untold = (why: string): Meaning => ({
    argv: argv.slice(0, MAX_WORDS),
    open,
    file: null,
    scripts: [],
    unsure: null,
    others: [],
    opaque: why,
    isTold: false,
  })
  if (argv.length > MAX_WORDS) return untold(`it has more than the ${MAX_WORDS} words that are followed`)
  if (called === undefined || called === null || called === '') return untold('which program it starts is not known before it runs')
  if (called.length > MAX_PATH || basename(called).length > MAX_NAME) return untold('its name is too long for a program')
  const file = fileOf(called, around)
  if (file === null && around.path !== null) return untold(`${called} is not found`)
  const risky = variables.find((name) => !isHarmless(name))
  const isTransparent = file === null ? isTransparentName(called) : isTransparentFile(called, file.real)
  const { scripts, unsure } = isTransparent ? { scripts: [], unsure: null } : scriptsIn([file?.path ?? called, ...rest], file, around.cwd)
  const others = isTransparent ? [] : programsIn(rest, around)
  const fleeting = [...(file === null ? [] : [file.path]), ...scripts].find(isOfProcess)
  if (fleeting !== undefined && around.path !== null) return untold(`${fleeting} is another file for each process that looks`)
  const opaque = isTransparent ? null : `${basename(called)} may start other programs, or run code that its words do not show`
  const byVariable = risky === undefined ? null : `${risky} can change what a program runs`
  return { argv, open, file, scripts, unsure, others, opaque: byVariable ?? opaque, isTold: true }
}

/** Finds scripts of interpreters at any index, so that no wrapper hides a script. After index 0, the script must exist. */
const scriptsIn = (words: readonly Word[], file: Meaning['file'], cwd: string | null): Pick<Meaning, 'scripts' | 'unsure'> => {
  const scripts = new Set<string>()
  let unsure: number | null = null
  words.forEach((word, at) => {
    const name = word === null ? null : (interpreterCalled(word) ?? (at === 0 && file !== null ? interpreterCalled(file.real) : null))
    if (name === null) return
    const given = scriptOf(
      name,
      words.slice(at + 1).filter((one) => one !== null),
    )
    const path = given.kind === 'script' ? placeOf(given.word, cwd) : null
    const isThere = path !== null && isFile(path)
    if (path !== null && (isThere || (at === 0 && isUnderstood(name)))) scripts.add(path)
    // `deno run x.ts` has its script after a subcommand, and `expect -fx.exp` has it in an option.
    else if (given.kind === 'unsure' || given.kind === 'nothing' || (path !== null && !isUnderstood(name))) unsure ??= at
  })
  return { scripts: [...scripts], unsure }
}

/** Finds the programs that a wrapper could start by its arguments. */
const programsIn = (words: readonly Word[], around: Surroundings): Meaning['others'] =>
  words.slice(0, MAX_LOOKED_FOR).flatMap((word, at) => {
    if (word === null || word === '' || word.startsWith('-') || word.length > MAX_PATH) return []
    const file = fileOf(word, around)
    return file !== null && isFile(file.path, 0o111) ? [{ ...file, at: at + 1 }] : []
  })

export const isFile = (path: string, rights = 0): boolean =>
  attempt(() => {
    const info = statSync(path)
    return info.isFile() && (rights === 0 || (info.mode & rights) !== 0)
  }) ?? false

/** True if a path leads through entries that differ for each process, such as `/proc/self`. */
const isOfProcess = (path: string): boolean =>
  attempt(() => {
    for (const { path: place } of resolveSteps(path)) if (place.startsWith('/proc/')) return true
    return false
  }) ?? true

/** Resolves a path as the kernel does, so that `..` after a link may lead elsewhere than its text. Null if the directory is unknown. */
export const placeOf = (path: string, cwd: string | null): string | null => {
  if (isAbsolute(path)) return path
  return cwd === null ? null : ['', ...namesOf(cwd), ...namesOf(path)].join('/')
}

const fileOf = (called: string, { cwd, path }: Surroundings): ProgramFile | null => {
  if (path === null) return null
  const place = called.includes('/') ? placeOf(called, cwd) : finderIn(path)(called)
  if (place === null) return null
  return attempt(() => {
    const info = statSync(place, { bigint: true })
    return { path: place, dev: info.dev, ino: info.ino, real: realPath(place) }
  })
}
