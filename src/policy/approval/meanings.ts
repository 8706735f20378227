import { realpathSync, statSync } from 'node:fs'
import { basename, isAbsolute, posix } from 'node:path'

import { attempt } from '../../base/errors.ts'
import { ESCAPES, programName } from '../escapes.ts'
import { finderIn, isCalled, MULTI_CALL } from '../executable.ts'
import { scriptOf } from '../given-script.ts'
import type { Executable } from '../permit.ts'
import { loadingOption } from './plain-options.ts'
import { isDangerous, shellText, unwrap, WRAPPER_NAMES, type Word } from './wrappers.ts'

/** Wrappers behind one another, and commands of one command, that are followed. */
const MAX_DEPTH = 16
const MAX_COMMANDS = 64
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

const SHELLS = ['sh', 'bash', 'rbash', 'dash', 'ash', 'zsh', 'ksh', 'mksh', 'fish', 'csh', 'tcsh', 'busybox', 'toybox']
const INTERPRETERS: readonly string[] = ESCAPES.flatMap(({ scripts, programs }) => (scripts === true ? programs : []))
/** An interpreter that only says who it is. */
const SAYS_WHO = /^(--version|-V|--help)$/

/** What a command means: each wrapper is taken off, each name looked up, each link followed. `open`: words that nobody knows may follow. */
export const meaningsOf = (argv: readonly Word[], variables: readonly string[], around: Surroundings, open = false): Meanings => {
  const reader = new Reader()
  const dangerous = variables.find(isDangerous)
  if (dangerous !== undefined) reader.opaque = `${dangerous} decides what a program runs`
  reader.read(argv, open, around, 0)
  return reader
}

class Reader implements Meanings {
  readonly all: Meaning[] = []
  readonly scripts: string[] = []
  opaque: string | null = null

  read(argv: readonly Word[], open: boolean, around: Surroundings, depth: number): void {
    const [called, ...words] = argv
    if (depth > MAX_DEPTH || this.all.length >= MAX_COMMANDS) return this.#unknown('it starts more through one another than is followed')
    if (called === undefined || called === null || called === '')
      return this.#unknown('which program it starts is not known before it runs')
    const file = fileOf(called, around)
    this.all.push({ argv, open, file })
    // A wrapper of its own name, such as an applet of busybox, is not there as a file.
    if (file === null && depth === 0 && around.path !== null) this.#unknown(`${called} is not found`)
    for (const name of namesOf(called, file, around)) this.#readAs(name, words, open, { around, depth })
  }

  #readAs(name: string, words: readonly Word[], open: boolean, at: { around: Surroundings; depth: number }): void {
    const { around, depth } = at
    if (INTERPRETERS.includes(name) && !MULTI_CALL.includes(name)) return this.#interpreter(name, words, open, at)
    const unwrapped = unwrap(name, words)
    if (unwrapped === null || unwrapped.kind === 'nothing') {
      if (unwrapped !== null && open) this.#unknown(`${name} starts what nobody knows before it runs`)
      return
    }
    if (unwrapped.kind === 'opaque') return this.#unknown(unwrapped.why)
    // What a program then starts by name is of that path, too.
    if (unwrapped.path !== null) this.#unknown(`${name} sets PATH, which decides what a program runs`)
    const next = { cwd: unwrapped.moved ? null : around.cwd, path: around.path === null ? null : (unwrapped.path ?? around.path) }
    for (const command of unwrapped.commands) {
      if (MULTI_CALL.includes(name)) this.#applet(command, open || unwrapped.open, next, depth + 1)
      else this.#inner(command, open || unwrapped.open, next, depth + 1)
    }
  }

  /** It is inside the file that was called, whatever of its name stands elsewhere. */
  #applet(command: readonly Word[], open: boolean, around: Surroundings, depth: number): void {
    const [called, ...words] = command
    const outer = this.all.at(-1)?.file ?? null
    if (typeof called !== 'string' || depth > MAX_DEPTH) return this.#unknown('which of its programs runs is not known')
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
    const [only] = known
    if (known.length === 1 && !open && SAYS_WHO.test(only ?? '')) return
    const given = scriptOf(name, known)
    if (given.kind === 'script') {
      const path = isAbsolute(given.word) ? given.word : around.cwd === null ? null : posix.resolve(around.cwd, given.word)
      if (path === null) return this.#unknown(`${given.word} is looked for where nobody knows before it runs`)
      this.scripts.push(path)
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

  #unknown(why: string): void {
    this.opaque ??= why
  }
}

/** The text of `sh -c TEXT`, where that alone is said; null for all else. */
const plainText = (words: readonly string[]): string | null =>
  /^-[eux]*c$/.test(words[0] ?? '') && words.length >= 2 ? (words[1] ?? null) : null

const fileOf = (called: string, { cwd, path }: Surroundings): Meaning['file'] => {
  if (path === null) return null
  const place = isAbsolute(called)
    ? called
    : called.includes('/')
      ? cwd === null
        ? null
        : posix.resolve(cwd, called)
      : finderIn(path)(called)
  if (place === null) return null
  return attempt(() => {
    const info = statSync(place, { bigint: true })
    return { path: place, dev: info.dev, ino: info.ino, real: realpathSync(place) }
  })
}

/** Whatever it may be known by: the name that it is called by, that of the file behind links, and of a wrapper or an interpreter that is the same file. */
const namesOf = (called: string, file: Meaning['file'], { path }: Surroundings): string[] => {
  const names = new Set([programName(called)])
  if (file === null || path === null) return [...names]
  const real = basename(file.real)
  // One file that is many acts by the name that it is called by.
  if (!MULTI_CALL.includes(real) || MULTI_CALL.includes(basename(called))) names.add(programName(file.real))
  const links = attempt(() => statSync(file.real).nlink) ?? 1
  if (links > 1 && !MULTI_CALL.includes(real))
    for (const name of [...WRAPPER_NAMES, ...INTERPRETERS]) if (!MULTI_CALL.includes(name) && isCalled(file, name, path)) names.add(name)
  return [...names]
}
