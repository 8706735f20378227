import { randomBytes } from 'node:crypto'
import { basename, isAbsolute, join } from 'node:path'

import { attempt } from '../../base/errors.ts'
import { programFormat } from '../../base/program-head.ts'
import { realPath } from '../../base/real-path.ts'
import { namesOf, wayTo } from '../../base/way.ts'
import { SCRUBBED_PATH } from '../environment.ts'
import { finderIn } from '../executable.ts'
import { hashFile, MAX_HASHED_BYTES } from '../file-mark.ts'
import { interpretersOf } from '../interpreters.ts'
import type { HeldFile, PermitFields, StandIn } from '../permit.ts'
import { programPlace } from '../sandbox/seen-from.ts'
import { meaningOf } from './meanings.ts'

/** Whether the requester can write, rename or replace what stands at a place, which is a path without links but for its last name. */
export type CanWrite = (place: string) => boolean

/** What runs in place of the files of a command that its requester can write. */
export interface Holding {
  readonly writable: readonly { readonly path: string; readonly sha256: string }[]
  readonly stand_in: StandIn | null
  /** Why no private copy can take the place of one of them; null: each has one, or the requester can write none. */
  readonly unheld: string | null
}

const NOTHING: Holding = { writable: [], stand_in: null, unheld: null }

/** Programs that start another of their words, and do nothing with its file but that. */
const LAUNCHERS = [
  'chrt',
  'doas',
  'env',
  'flock',
  'ionice',
  'nice',
  'nohup',
  'prlimit',
  'setarch',
  'setpriv',
  'setsid',
  'stdbuf',
  'sudo',
  'taskset',
  'time',
  'timeout',
  'unshare',
  'xargs',
]

/** Words that are tried in place of one another. */
const MAX_TRIES = 64

class Unheld extends Error {}

/** Finds the files of a run that its requester can write, and what can run in their place. */
export const holdFiles = (fields: PermitFields, canWrite: CanWrite): Holding => {
  const holder = new Holder(fields, canWrite)
  try {
    const stand_in = holder.standIn()
    return holder.isNeeded ? { writable: holder.writable, stand_in, unheld: null } : NOTHING
  } catch (error) {
    if (!(error instanceof Unheld)) throw error
    return { writable: holder.writable, stand_in: null, unheld: error.message }
  }
}

class Holder {
  readonly #fields: PermitFields
  readonly #canWrite: CanWrite
  readonly #inImage: boolean
  readonly #path: string
  /** Begins each word that stands for a private copy. Nothing is at such a path. */
  readonly #mark = `/.x0x-${randomBytes(16).toString('hex')}`
  readonly #standing = new Map<string, string | HeldFile>()

  constructor(fields: PermitFields, canWrite: CanWrite) {
    this.#fields = fields
    this.#canWrite = canWrite
    this.#inImage = fields.sandbox !== null && fields.sandbox.image !== null
    this.#path = fields.env['PATH'] ?? SCRUBBED_PATH
  }

  get isNeeded(): boolean {
    return this.#standing.size > 0
  }

  get writable(): Holding['writable'] {
    return [...this.#standing.values()].flatMap((one) => (typeof one === 'string' ? [] : [{ path: one.path, sha256: one.sha256 }]))
  }

  standIn(): StandIn {
    const { argv, executable } = this.#fields
    const place = attempt(() => programPlace(this.#fields)) ?? executable.path
    const isHeld = this.#isHeld(executable.path) || this.#isHeld(place)
    const words = [isHeld ? this.#wordFor(executable.path, place) : executable.path, ...argv.slice(1)]
    for (let tries = 0, left = this.#named(words); left.length > 0; left = this.#named(words)) {
      const [path = ''] = left
      const trial = join(this.#mark, basename(path))
      const at = words.findIndex(
        (word, index) =>
          index > 0 && this.#means(word, path) && tries++ < MAX_TRIES && this.#named(words.with(index, trial)).length < left.length,
      )
      if (at === -1) throw new Unheld(`the requester can write ${path}, and no word of the command is this file alone`)
      words[at] = this.#wordFor(path, path)
    }
    const interpreter = this.#interpreter(place)
    const [argv0 = '', whole] = interpreter === null ? [argv[0], words] : [interpreter.path, [...interpreter.words, ...words]]
    return { argv0, words: whole.map((word) => this.#standing.get(word) ?? word) }
  }

  /** True where the requester could put another file at the end of this path. */
  #isHeld(path: string): boolean {
    const reach = attempt(() => {
      if (path.startsWith(this.#mark)) return false
      for (const { path: place } of wayTo(path)) if (this.#canWrite(place)) return true
      return false
    })
    return reach ?? true
  }

  /** Stands for the private copy of a file. A file that the requester can replace by a link alone has its real path instead. */
  #wordFor(path: string, place: string): string {
    const real = attempt(() => realPath(place))
    if (real === null) throw new Unheld(`the requester can write ${path}, and it cannot be followed`)
    if (!this.#isHeld(real)) {
      if (this.#inImage) throw new Unheld(`the requester can replace ${path}, which leads into an image`)
      this.#standing.set(real, real)
      return real
    }
    const hashed = hashFile(real)
    if (hashed === null)
      throw new Unheld(`the requester can write ${path}, which cannot be read whole (at most ${MAX_HASHED_BYTES / 1024 / 1024} MiB)`)
    const word = join(`${this.#mark}-${this.#standing.size}`, basename(path))
    this.#standing.set(word, { path: real, sha256: hashed.sha256, name: basename(path) })
    return word
  }

  /** The files that these words have run, besides the program itself, and that the requester can write. */
  #named(words: readonly string[]): string[] {
    const { executable } = this.#fields
    const [program = '', ...rest] = words
    // A program is known by the files that are the same, which its copy is not.
    return [...new Set([program, executable.path])].flatMap((first) =>
      this.#filesOf([first, ...rest]).filter((file) => (first !== executable.path || file !== first) && this.#isHeld(file)),
    )
  }

  #filesOf(words: readonly string[]): string[] {
    const [program = '', ...rest] = words
    // A copy is not found yet, and the words behind it are read all the same.
    const called = program.startsWith(this.#mark) ? basename(program) : program
    const around = { cwd: this.#fields.cwd, path: this.#inImage ? null : this.#path }
    const { file, scripts, others } = meaningOf([called, ...rest], [], around)
    const isLauncher = [called, file?.real ?? called].some((one) => LAUNCHERS.includes(basename(one)))
    return [...(file === null ? [] : [file.path]), ...scripts, ...(isLauncher ? others.map(({ path }) => path) : [])]
  }

  /** True where a word is this file, by its path or as a program that is looked up. */
  #means(word: string, path: string): boolean {
    const from = isAbsolute(word) ? word : ['', ...namesOf(this.#fields.cwd), ...namesOf(word)].join('/')
    return from === path || finderIn(this.#path)(word) === path
  }

  /** What starts the script that was called, where the requester can write its interpreter; null: the kernel starts it. */
  #interpreter(place: string): { readonly path: string; readonly words: readonly string[] } | null {
    const { argv, executable } = this.#fields
    const format = attempt(() => programFormat(place))
    const first = format?.kind === 'through' && format.isScript ? format : null
    if (this.#inImage) {
      if (first !== null && this.#isHeld(first.interpreter))
        throw new Unheld(`${place} runs ${first.interpreter}, which the requester can write`)
      return null
    }
    for (const program of new Set([place, ...this.#filesOf([executable.path, ...argv.slice(1)])])) {
      const chain = attempt(() => interpretersOf(program, finderIn(this.#path)))
      if (chain === null && this.#isHeld(program)) throw new Unheld(`${program} names an interpreter that cannot be followed`)
      const held = (chain ?? []).filter(({ interpreter }) => this.#isHeld(interpreter))
      const [one] = held
      if (one === undefined) continue
      if (program !== place || held.length > 1 || one !== chain?.[0] || first === null || basename(one.interpreter) === 'env')
        throw new Unheld(`${one.program} runs ${one.interpreter}, which the requester can write; start that with the script as its word`)
      const argument = first.argument === '' ? [] : [first.argument]
      return { path: first.interpreter, words: [this.#wordFor(first.interpreter, first.interpreter), ...argument] }
    }
    return null
  }
}
