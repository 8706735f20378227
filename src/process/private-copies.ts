import { randomBytes } from 'node:crypto'
import { chmodSync, closeSync, mkdirSync, openSync, readdirSync, rmSync, statSync, symlinkSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import { attempt } from '../base/errors.ts'
import { identityFrom, identityText, processState, ownIdentity } from '../base/process-info.ts'
import type { Startable } from '../base/startable.ts'
import { hashFile } from '../policy/file-mark.ts'
import type { PinnedFile, Permit, StandIn } from '../policy/permit.ts'

/** Directory below the user's data directory, outside every root of a requester. */
export const COPIES_DIRECTORY = 'run-copies'

/** Program and argv that are started for a permit. */
export interface ProgramFiles extends Pick<Permit, 'argv' | 'executable'> {
  /** Files that a sandbox must also show. */
  readonly copies: readonly string[]
}

/** Private copies of files that their requesters can write, kept while a run needs them. */
export class PrivateCopies implements Startable {
  readonly #all: string
  readonly #own: string

  constructor({ dataDir }: { readonly dataDir: string }) {
    this.#all = join(dataDir, COPIES_DIRECTORY)
    this.#own = join(this.#all, identityText(ownIdentity(), '-'))
  }

  /** Removes copies of dead processes. */
  start(): void {
    for (const name of namesIn(this.#all)) {
      const owner = identityFrom(name)
      if (owner !== null && processState(owner) === 'gone') removeAll(join(this.#all, name))
    }
  }

  stop(): void {
    removeAll(this.#own)
  }

  /** Creates the copies. Throws errors of the system, and for a file whose hash differs from the approved one. Then nothing is left. */
  make({ argv0, words: template }: StandIn): ProgramFiles & { remove(): void } {
    const directory = join(this.#own, randomBytes(16).toString('hex'))
    try {
      const copies: string[] = []
      const [program = '', ...words] = template.map((word, at) => {
        if (typeof word === 'string') return word
        const copy = placeFor(word, join(directory, String(at)))
        copies.push(copy)
        return copy
      })
      const { dev, ino } = statSync(program, { bigint: true })
      return { argv: [argv0, ...words], executable: { path: program, dev, ino }, copies, remove: () => removeRun(directory) }
    } catch (error) {
      removeRun(directory)
      throw error
    }
  }
}

const namesIn = (directory: string): string[] => attempt(() => readdirSync(directory)) ?? []

const removeAll = (own: string): void => {
  for (const name of namesIn(own)) removeRun(join(own, name))
  attempt(() => rmSync(own, { recursive: true, force: true }))
}

/** The next start removes what the system refuses to remove now. */
const removeRun = (directory: string): void => {
  for (const name of namesIn(directory)) attempt(() => chmodSync(join(directory, name), 0o700))
  attempt(() => rmSync(directory, { recursive: true, force: true }))
}

/** Copies or links a file in a read-only directory, so that a program cannot replace the file. */
const placeFor = ({ path, sha256, name }: PinnedFile, directory: string): string => {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const place = join(directory, name)
  if (sha256 === null) symlinkSync(path, place)
  else copy(path, sha256, place)
  chmodSync(directory, 0o500)
  return place
}

const copy = (path: string, sha256: string, place: string): void => {
  const descriptor = openSync(place, 'wx', 0o500)
  try {
    const read = hashFile(path, (part) => {
      for (let at = 0; at < part.length;) at += writeSync(descriptor, part, at)
    })
    if (read?.sha256 !== sha256) throw new Error(`${path} was changed after it was permitted`)
  } finally {
    closeSync(descriptor)
  }
}
