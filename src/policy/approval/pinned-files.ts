import { basename } from 'node:path'
import { attempt } from '../../base/errors.ts'
import { realPath, resolveSteps } from '../../base/path-resolution.ts'
import type { HashedFile } from '../../protocol/desk/approval-request.ts'
import { SCRUBBED_PATH } from '../environment.ts'
import { interpreterCalled } from '../escapes.ts'
import { finderIn } from '../executable.ts'
import { type HashedFiles, MAX_HASHED_BYTES } from '../file-mark.ts'
import type { PinnedFile, PermitFields, StandIn } from '../permit.ts'
import { programPath, seenIn } from '../sandbox/sandbox-grant.ts'
import { type Interpretation, interpretersOf, isUnderstood, scriptOf } from '../scripts.ts'
import { type Meaning, isFile, placeOf } from './meanings.ts'
import { runsNoWord } from './transparent.ts'

/** True if the requester can write, rename or replace a file. In the path, only the last component may be a link. */
export type CanWrite = (place: string) => boolean

/** Replacements for the files of a command that its requester can write. */
export interface PinnedFiles {
  readonly writable: readonly HashedFile[]
  readonly stand_in: StandIn | null
  /** Why a file has no replacement, or null if each has one or the requester can write none. */
  readonly unheld: string | null
}

const NOTHING: PinnedFiles = { writable: [], stand_in: null, unheld: null }

class NotPinnable extends Error {}

/**
 * Finds the files of a run that its requester can write, and their replacements. `canWrite`: null if the requester has no file access.
 * `files`: hashes as the approver sees them.
 */
export const holdFiles = (fields: PermitFields, meaning: Meaning, canWrite: CanWrite | null, files: HashedFiles): PinnedFiles => {
  if (canWrite === null) return NOTHING
  const holder = new Holder(fields, canWrite, files)
  try {
    const stand_in = holder.standIn(meaning)
    return { writable: holder.writable, stand_in, unheld: null }
  } catch (error) {
    if (!(error instanceof NotPinnable)) throw error
    return { writable: holder.writable, stand_in: null, unheld: error.message }
  }
}

class Holder {
  readonly #fields: PermitFields
  readonly #canWrite: CanWrite
  readonly #files: HashedFiles
  readonly #inImage: boolean
  readonly #find: (name: string) => string | null
  readonly #hashes = new Map<string, string>()
  #bytesLeft = MAX_HASHED_BYTES

  constructor(fields: PermitFields, canWrite: CanWrite, files: HashedFiles) {
    this.#fields = fields
    this.#canWrite = canWrite
    this.#files = files
    this.#inImage = fields.sandbox !== null && fields.sandbox.image !== null
    this.#find = this.#inImage ? () => null : finderIn(fields.env['PATH'] ?? SCRUBBED_PATH)
  }

  get writable(): readonly HashedFile[] {
    return [...this.#hashes].map(([path, sha256]) => ({ path, sha256 }))
  }

  standIn(meaning: Meaning): StandIn | null {
    const { argv, executable } = this.#fields
    if (!meaning.isTold) throw new NotPinnable(meaning.opaque ?? executable.path)
    const place = attempt(() => programPath(this.#fields)) ?? executable.path
    const held = this.#hold(executable.path, place)
    const program = held ?? executable.path
    const interpreter = this.#interpreter(held?.path ?? place)
    const read = typeof held?.sha256 === 'string' ? 0 : placeOfScript(meaning, argv)
    const words = argv.slice(1).map((word, index) => this.#wordFor(word, index + 1, { ...meaning, read }))
    if (interpreter === null && [program, ...words].every((word) => typeof word === 'string')) return null
    if (interpreter === null) return { argv0: argv[0] ?? '', words: [program, ...words] }
    return { argv0: interpreter.path, words: [...interpreter.words, program, ...words] }
  }

  /** True if the requester could put another file at the end of this path. */
  #isHeld(path: string): boolean {
    const reach = attempt(() => {
      for (const { path: place } of resolveSteps(path)) if (this.#canWrite(place)) return true
      return false
    })
    return reach ?? true
  }

  /** The replacement of a file, or null if the requester cannot replace the file. `place`: resolved path on this host. */
  #hold(path: string, place: string): PinnedFile | null {
    if (!this.#isHeld(path) && !this.#isHeld(place)) return null
    const real = attempt(() => realPath(place))
    if (real === null) throw new NotPinnable(`the requester can write ${path}, and it cannot be followed`)
    const name = basename(path)
    if (!this.#isHeld(real)) {
      if (this.#inImage) throw new NotPinnable(`the requester can replace ${path}, which leads into an image`)
      return { path: real, sha256: null, name }
    }
    const hashed = this.#files.hash(real)
    this.#bytesLeft -= hashed?.size ?? Infinity
    if (hashed === null || this.#bytesLeft < 0)
      throw new NotPinnable(
        `the requester can write ${path}, which cannot be read whole (at most ${MAX_HASHED_BYTES / 1024 / 1024} MiB, all such files together)`,
      )
    this.#hashes.set(real, hashed.sha256)
    return { path: real, sha256: hashed.sha256, name }
  }

  /** Like `#hold`, for a program that is started by its path. */
  #holdProgram(path: string, place: string): PinnedFile | null {
    const held = this.#hold(path, place)
    const [own] = this.#heldInterpreters(held?.path ?? place)
    if (own !== undefined) throw through(own)
    return held
  }

  /** An argument, or the replacement of the file that it names. */
  #wordFor(word: string, at: number, { scripts, unsure, file, read }: Meaning & { readonly read: number }): string | PinnedFile {
    const { cwd, executable, sandbox } = this.#fields
    const path = placeOf(word, cwd) ?? word
    const place = sandbox === null ? path : (attempt(() => seenIn(sandbox, path)) ?? path)
    if (at === read) return this.#hold(path, place) ?? word
    const mayRun = unsure !== null && at > unsure
    if (scripts.includes(path) || (mayRun && isFile(place))) return this.#holdProgram(path, place) ?? word
    if (!mayRun && runsNoWord(executable.path, file?.real ?? executable.path)) return word
    const glued = partsOf(word).flatMap((part) => [placeOf(part, cwd) ?? part, (part.includes('/') ? null : this.#find(part)) ?? part])
    const part = glued.find((one) => isFile(one, mayRun ? 0 : 0o111) && this.#holdProgram(one, one) !== null)
    if (part !== undefined) throw new NotPinnable(`the requester can write ${part}, which is a part of the word ${word}`)
    if (word.startsWith('-')) return word
    const program = word.includes('/') ? place : this.#find(word)
    if (program === null || !isFile(program, 0o111)) return word
    return this.#holdProgram(word.includes('/') ? path : program, program) ?? word
  }

  /** Interpreters of a program that the requester can write. */
  #heldInterpreters(program: string): Interpretation[] {
    const chain = attempt(() => {
      if (!this.#inImage) return interpretersOf(program, this.#find, (path) => this.#files.format(path))
      // The interpreter of a program in an image is a file of the image.
      const format = this.#files.format(program)
      return format.kind === 'through' ? [{ program, interpreter: format.interpreter }] : []
    })
    if (chain === null) throw new NotPinnable(`${program} names an interpreter that cannot be followed`)
    return chain.filter(({ interpreter }) => this.#isHeld(interpreter))
  }

  /** The interpreter that starts the called script, if the requester can write it, or null if the kernel starts the script. */
  #interpreter(program: string): { readonly path: string; readonly words: readonly (string | PinnedFile)[] } | null {
    const [own, ...more] = this.#heldInterpreters(program)
    if (own === undefined) return null
    const { interpreter: path } = own
    const format = attempt(() => this.#files.format(program))
    if (this.#inImage || format?.kind !== 'through' || !format.isScript || more.length > 0 || path !== format.interpreter)
      throw through(own)
    return { path, words: [this.#holdProgram(path, path) ?? path, ...(format.argument === '' ? [] : [format.argument])] }
  }
}

/** Index of the script that the called program reads itself, so that the kernel does not start it, or 0 if none is known. */
const placeOfScript = ({ file }: Meaning, argv: readonly string[]): number => {
  const name = file === null ? null : interpreterCalled(file.real)
  const given = name !== null && isUnderstood(name) ? scriptOf(name, argv.slice(1)) : null
  return given?.kind === 'script' ? argv.indexOf(given.word, 1) : 0
}

/** Values in `-XVALUE`, `-abX./VALUE`, `--name=VALUE` and `name=VALUE`, by which a program may name a file to run. */
const partsOf = (word: string): readonly string[] => {
  const value = word.slice(word.indexOf('=') + 1)
  return [...(value === word ? [] : [value]), ...(word.startsWith('-') ? [word.slice(2), word.slice(word.search(/[./]/))] : [])]
}

const through = ({ program, interpreter }: Interpretation): NotPinnable =>
  new NotPinnable(`${program} runs ${interpreter}, which the requester can write; start that with the script as its word`)
