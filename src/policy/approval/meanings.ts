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

/** A word of a command; null: one that nobody knows before it runs. */
export type Word = string | null

/** Words that are held against rules: a caller chooses how many. */
const MAX_WORDS = 4_096
/** Of those, words that are looked for as programs. */
const MAX_LOOKED_FOR = 64
/** No file has a longer path, or a longer name in it (limits.h). */
const MAX_PATH = 4_096
const MAX_NAME = 255

/** Where names and paths of a command are looked for. */
export interface Surroundings {
  /** Null: nobody knows. */
  readonly cwd: string | null
  /** Null: on another host, or in an image, whose files nobody here knows. */
  readonly path: string | null
}

/** A program as its name finds it, and the file behind links. */
export interface ProgramFile extends Executable {
  readonly real: string
}

/** What the words of a command say of what it runs. */
export interface Meaning {
  /** The words, at most `MAX_WORDS`. */
  readonly argv: readonly Word[]
  /** More words may follow, which nobody knows. */
  readonly open: boolean
  /** The program's file; null: it is not there, or not on this host. */
  readonly file: ProgramFile | null
  /** Files that interpreters among the words would run, absolute. */
  readonly scripts: readonly string[]
  /** The place of an interpreter whose options are not known, so that it may run each file behind it; null: there is none. */
  readonly unsure: number | null
  /** Programs among the other words, and where each stands. */
  readonly others: readonly (ProgramFile & { readonly at: number })[]
  /** Why the command may run what its words do not say; null: they say all. */
  readonly opaque: string | null
  /** False where not even its own files can be told, so that no list and no grant can have it. */
  readonly isTold: boolean
}

/** Reads a command by its words and the files that they name. `variables`: names that its caller sets. `open`: more words may follow. */
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
  const byVariable = risky === undefined ? null : `${risky} may decide what a program runs`
  return { argv, open, file, scripts, unsure, others, opaque: byVariable ?? opaque, isTold: true }
}

/** Wherever an interpreter stands among the words, so that no wrapper hides its script. Behind the first word the script must be there. */
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
    // `deno run x.ts` has its script behind a word that is none.
    // `expect -fx.exp` has it in an option.
    else if (given.kind === 'unsure' || given.kind === 'nothing' || (path !== null && !isUnderstood(name))) unsure ??= at
  })
  return { scripts: [...scripts], unsure }
}

/** Programs that a wrapper would find by its words. */
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

/** True where a path leads through what each process sees as its own. */
const isOfProcess = (path: string): boolean =>
  attempt(() => {
    for (const { path: place } of resolveSteps(path)) if (place.startsWith('/proc/')) return true
    return false
  }) ?? true

/** As the kernel goes on from there: `..` behind a link leads elsewhere than its text says. Null: from where is not known. */
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
