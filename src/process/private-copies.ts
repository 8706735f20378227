import { randomBytes } from 'node:crypto'
import { closeSync, mkdirSync, openSync, readdirSync, rmSync, statSync, writeSync } from 'node:fs'
import { join } from 'node:path'

import { attempt } from '../base/errors.ts'
import { identityFrom, identityText, lifeOf, ownIdentity } from '../base/process-identity.ts'
import { programFormat } from '../base/program-head.ts'
import type { Startable } from '../base/startable.ts'
import { hashFile } from '../policy/file-mark.ts'
import type { Executable, HeldFile, Permit } from '../policy/permit.ts'

/** Below the data directory of this user, which no root of a requester holds. */
export const COPIES_DIRECTORY = 'run-copies'

/** What is started of a permit. */
export interface Starting extends Pick<Permit, 'argv' | 'executable'> {
  /** Files that a sandbox must show besides. */
  readonly copies: readonly string[]
}

/** Private copies of files that their requesters can write, for as long as a run needs them. */
export class PrivateCopies implements Startable {
  readonly #all: string
  readonly #own: string

  constructor({ dataDir }: { readonly dataDir: string }) {
    this.#all = join(dataDir, COPIES_DIRECTORY)
    this.#own = join(this.#all, identityText(ownIdentity(), '-'))
  }

  /** Removes what a process left that was killed. */
  start(): void {
    for (const name of attempt(() => readdirSync(this.#all)) ?? []) {
      const owner = identityFrom(name)
      if (owner !== null && lifeOf(owner) === 'gone') remove(join(this.#all, name))
    }
  }

  stop(): void {
    remove(this.#own)
  }

  /** Copies what must be copied. Throws what the system says, and where a file is no more what was hashed; nothing is left then. */
  make(permit: Permit): Starting & { remove(): void } {
    const { stand_in, argv, executable } = permit
    if (stand_in === null) return { argv, executable, copies: [], remove: () => {} }
    const directory = join(this.#own, randomBytes(16).toString('hex'))
    const discard = (): void => remove(directory)
    try {
      const copies = new Map(
        stand_in.words.flatMap((word, at) => (typeof word === 'string' ? [] : [[word, copyOf(word, join(directory, String(at)))]])),
      )
      const [program = executable.path, ...words] = stand_in.words.map((word) =>
        typeof word === 'string' ? word : (copies.get(word) ?? ''),
      )
      const changed = [...copies.values()].find((copy) => !namesPinned(copy, permit))
      if (changed !== undefined) throw new Error(`${changed} names another interpreter than the one that was permitted`)
      const { dev, ino } = statSync(program, { bigint: true })
      return {
        argv: [stand_in.argv0, ...words],
        executable: { path: program, dev, ino } satisfies Executable,
        copies: [...copies.values()],
        remove: discard,
      }
    } catch (error) {
      discard()
      throw error
    }
  }
}

const remove = (path: string): void => rmSync(path, { recursive: true, force: true })

const copyOf = ({ path, sha256, name }: HeldFile, directory: string): string => {
  mkdirSync(directory, { recursive: true, mode: 0o700 })
  const copy = join(directory, name)
  const descriptor = openSync(copy, 'wx', 0o500)
  try {
    const read = hashFile(path, (part) => {
      for (let at = 0; at < part.length;) at += writeSync(descriptor, part, at)
    })
    if (read?.sha256 !== sha256) throw new Error(`${path} was changed after it was permitted`)
  } finally {
    closeSync(descriptor)
  }
  return copy
}

/** Policy looked for interpreters before it hashed the script: what it found must be what these bytes name. */
const namesPinned = (copy: string, { pins, sandbox }: Permit): boolean => {
  if (sandbox !== null && sandbox.image !== null) return true
  const format = programFormat(copy)
  return format.kind !== 'through' || pins.some(({ path }) => path === format.interpreter)
}
