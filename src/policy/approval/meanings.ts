import { statSync } from 'node:fs'
import { basename, isAbsolute, posix } from 'node:path'

import { attempt } from '../../base/errors.ts'
import { namesOf, wayTo } from '../../base/way.ts'
import { realPath } from '../../base/real-path.ts'
import { ESCAPES, programName } from '../escapes.ts'
import { isHarmless } from '../environment.ts'
import { finderIn, MULTI_CALL } from '../executable.ts'
import { loadingOption, saysWho, scriptOf } from '../given-script.ts'
import type { Executable } from '../permit.ts'
import { shellText, unwrap, WRAPPER_NAMES, type Word } from './wrappers.ts'

/** Wrappers behind one another, and commands of one command, that are followed. */
const MAX_DEPTH = 16
const MAX_COMMANDS = 64
/** Words of all of them together: a caller chooses how many, and each is held against each rule. */
const MAX_WORDS = 4_096
/** No file has a longer path, or a longer name in it (limits.h). */
const MAX_PATH = 4_096
const MAX_NAME = 255
/** Of an option that a sentence names. */
const MAX_SHOWN_OPTION = 64

/** Where names and paths of a command are looked for. */
export interface Surroundings {
  /** Null: nobody knows. */
  readonly cwd: string | null
  /** Null: on another host, whose files nobody here knows. */
  readonly path: string | null
}

/** One program that a command has started, by itself or through a wrapper. */
export interface Meaning {
  /** As it is called, and its words. */
  readonly argv: readonly Word[]
  /** Words that nobody knows may follow. */
  readonly open: boolean
  /** Its very file; null: it is not there. */
  readonly file: (Executable & { readonly real: string }) | null
}

/** All that a command would run, as far as its words say. */
export interface Meanings {
  /** The command itself first. */
  readonly all: readonly Meaning[]
  /** Files that interpreters among them would run, absolute. */
  readonly scripts: readonly string[]
  /** Why that is not all, or may not be; null: it is. */
  readonly opaque: string | null
}

/** Whose text is read: others have words of their own before a command, as `noglob` and `=x` of zsh. */
const SHELLS = ['sh', 'bash', 'rbash', 'dash', 'ash', 'ksh']
const INTERPRETERS: readonly string[] = ESCAPES.flatMap(({ scripts, programs }) => (scripts === true ? programs : []))
/** What a command means: each wrapper is taken off, each name looked up, each link followed. `open`: words that nobody knows may follow. */
export const meaningsOf = (argv: readonly Word[], variables: readonly string[], around: Surroundings, open = false): Meanings => {
  const reader = new Reader()
  const risky = variables.find((name) => !isHarmless(name))
  if (risky !== undefined) reader.opaque = `${risky} may decide what a program runs`
  reader.read(argv, open, around, 0)
  return reader
}

class Reader implements Meanings {
  readonly all: Meaning[] = []
  readonly scripts: string[] = []
  opaque: string | null = null
  readonly #files = new KnownFiles()
  #words = 0

  read(argv: readonly Word[], open: boolean, around: Surroundings, depth: number): void {
    if (this.#isTooMuch(argv, depth)) return
    const [called, ...words] = argv
    // What begins as an option does is the value of one that was not understood.
    if (called === undefined || called === null || called === '' || called.startsWith('-'))
      return this.#unknown('which program it starts is not known before it runs')
    if (called.length > MAX_PATH || basename(called).length > MAX_NAME) return this.#unknown('a name is too long for a program')
    const file = fileOf(called, around)
    this.all.push({ argv, open, file })
    if (file !== null && isOfProcess(file.path)) this.#unknown(`${called} is another file for each process that looks`)
    // A wrapper of its own name, such as an applet of busybox, is not there as a file.
    if (file === null && depth === 0 && around.path !== null) this.#unknown(`${called} is not found`)
    for (const name of knownAs(called, words[0], file, around, this.#files)) this.#readAs(name, words, open, { around, depth })
  }

  #readAs(name: string, words: readonly Word[], open: boolean, at: { around: Surroundings; depth: number }): void {
    const { around, depth } = at
    // Of a row are those that go on with stdin behind their script, such as debuggers, and one file that is many.
    if (INTERPRETERS.includes(name) && !WRAPPER_NAMES.includes(name)) return this.#interpreter(name, words, open, at)
    const unwrapped = unwrap(name, words)
    if (unwrapped === null || unwrapped.kind === 'nothing') {
      if (unwrapped !== null && open) this.#unknown(`${name} starts what nobody knows before it runs`)
      return
    }
    if (unwrapped.kind === 'opaque') return this.#unknown(unwrapped.why)
    if (unwrapped.beside !== null) this.#unknown(unwrapped.beside)
    const next = { cwd: unwrapped.moved ? null : around.cwd, path: around.path === null ? null : (unwrapped.path ?? around.path) }
    for (const command of unwrapped.commands) {
      if (MULTI_CALL.includes(name)) this.#applet(command, open || unwrapped.open, next, depth + 1)
      else this.#inner(command, open || unwrapped.open, next, depth + 1)
    }
  }

  /** It is inside the file that was called, whatever of its name stands elsewhere. */
  #applet(command: readonly Word[], open: boolean, around: Surroundings, depth: number): void {
    if (this.#isTooMuch(command, depth)) return
    const [called, ...words] = command
    const outer = this.all.at(-1)?.file ?? null
    if (typeof called !== 'string' || called.length > MAX_NAME) return this.#unknown('which of its programs runs is not known')
    this.all.push({ argv: command, open, file: outer })
    this.#readAs(programName(called), words, open, { around, depth })
  }

  #inner(command: readonly Word[], open: boolean, around: Surroundings, depth: number): void {
    const [called] = command
    if (typeof called === 'string' && called.includes('/') && !isAbsolute(called) && around.cwd === null)
      return this.#unknown(`${called} is looked for where nobody knows before it runs`)
    const before = this.all.length
    this.read(command, open, around, depth)
    const inner = this.all[before]
    if (inner !== undefined && inner.file === null && around.path !== null) this.#unknown(`${String(called)} is not found`)
  }

  #interpreter(name: string, words: readonly Word[], open: boolean, { around, depth }: { around: Surroundings; depth: number }): void {
    const known = words.filter((word) => word !== null)
    if (known.length !== words.length) return this.#unknown(`${name} is given words that nobody knows before it runs`)
    if (!open && saysWho(name, known)) return
    const given = scriptOf(name, known)
    if (given.kind === 'script') {
      const path = placeOf(given.word, around.cwd)
      if (path === null) return this.#unknown(`${given.word} is looked for where nobody knows before it runs`)
      this.scripts.push(path)
      if (around.path !== null && isOfProcess(path)) this.#unknown(`${given.word} is another file for each process that looks`)
      const loading = loadingOption(name, known)
      if (loading !== null) this.#unknown(`${name} may run more than its script by ${loading.slice(0, MAX_SHOWN_OPTION)}`)
      return
    }
    const text = SHELLS.includes(name) && given.kind === 'text' ? plainText(known) : null
    if (text === null) return this.#unknown(`${name} runs what it is given, which is no file of its own`)
    const unwrapped = shellText([text])
    if (unwrapped.kind === 'opaque') return this.#unknown(unwrapped.why)
    if (unwrapped.kind === 'commands')
      for (const command of unwrapped.commands)
        this.#inner(command, false, { ...around, cwd: unwrapped.moved ? null : around.cwd }, depth + 1)
  }

  /** Of what is too much nothing but the beginning of the command itself is kept. */
  #isTooMuch(argv: readonly Word[], depth: number): boolean {
    this.#words += argv.length
    const isTooLong = this.#words > MAX_WORDS
    if (!isTooLong && depth <= MAX_DEPTH && this.all.length < MAX_COMMANDS) return false
    this.#unknown(
      isTooLong ? `it has more than the ${MAX_WORDS} words that are followed` : 'it starts more through one another than is followed',
    )
    return true
  }

  #unknown(why: string): void {
    this.opaque ??= why
  }
}

/** The text of `sh -c TEXT`, where that alone is said; null for all else. Behind `-c` more options may stand before the text. */
const plainText = ([option = '', text = '-']: readonly string[]): string | null =>
  /^-[eux]*c$/.test(option) && !/^[-+]/.test(text) ? text : null

/** True where a path leads through what each process sees as its own. */
const isOfProcess = (path: string): boolean =>
  attempt(() => {
    for (const { path: place } of wayTo(path)) if (place.startsWith('/proc/')) return true
    return false
  }) ?? true

/** As the kernel goes on from there: `..` behind a link leads elsewhere than its text says. Null: from where is not known. */
const placeOf = (path: string, cwd: string | null): string | null => {
  if (isAbsolute(path)) return path
  return cwd === null ? null : ['', ...namesOf(cwd), ...namesOf(path)].join('/')
}

const fileOf = (called: string, { cwd, path }: Surroundings): Meaning['file'] => {
  if (path === null) return null
  const place = called.includes('/') ? placeOf(called, cwd) : finderIn(path)(called)
  if (place === null) return null
  return attempt(() => {
    const info = statSync(place, { bigint: true })
    return { path: place, dev: info.dev, ino: info.ino, real: realPath(place) }
  })
}

/** Which wrappers and interpreters stand at which file, looked up once for a command, and only where a file has several names. */
class KnownFiles {
  #names: Map<string, string[]> | null = null

  namesOf({ dev, ino }: Executable, path: string): readonly string[] {
    this.#names ??= KnownFiles.#lookUp(path)
    return this.#names.get(`${dev}:${ino}`) ?? []
  }

  static #lookUp(path: string): Map<string, string[]> {
    const names = new Map<string, string[]>()
    for (const name of [...WRAPPER_NAMES, ...INTERPRETERS].filter((one) => !MULTI_CALL.includes(one)))
      for (const directory of path.split(':')) {
        const info = attempt(() => statSync(posix.join(directory, name), { bigint: true, throwIfNoEntry: false }))
        if (info !== null && info !== undefined)
          names.set(`${info.dev}:${info.ino}`, [...(names.get(`${info.dev}:${info.ino}`) ?? []), name])
      }
    return names
  }
}

/** Whatever it may be known by: the name that it is called by, that of the file behind links, and of a wrapper or an interpreter that is the same file. */
const knownAs = (called: string, first: Word | undefined, file: Meaning['file'], { path }: Surroundings, known: KnownFiles): string[] => {
  // There are file systems, macOS's among them, on which `/usr/bin/ENV` is env.
  const spelled = [called, called.toLowerCase()]
  const names = new Set(spelled.flatMap((one) => [programName(one), basename(one)]))
  if (file === null || path === null) return [...names]
  const real = basename(file.real)
  // One file that is many acts by the name that it is called by, and under one that begins with its own, or told so, as itself.
  const isItself = basename(called).startsWith(real) || (first?.startsWith('--coreutils-prog') ?? true)
  if (!MULTI_CALL.includes(real) || isItself) names.add(programName(file.real)).add(real)
  const links = attempt(() => statSync(file.real).nlink) ?? 1
  if (links > 1 && !MULTI_CALL.includes(real)) for (const name of known.namesOf(file, path)) names.add(name)
  return [...names]
}
