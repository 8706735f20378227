import type { BigIntStats } from 'node:fs'
import type { FileHandle } from 'node:fs/promises'

import type { Root } from '../policy/local/file-permit.ts'

/** Something in the file system that we hold: it stays the same thing, whatever happens to its name. Errors are the system's. */
export interface Held extends Disposable {
  /** Null where it is held by its path. */
  readonly descriptor: number | null
  /** A path to it for one system call; never for a user. */
  readonly self: string
  /** A path to what stands at a name of this directory, for one system call: nothing before the name is a link. */
  at(name: string): string
  /** Where it stands now. */
  real(): Promise<string>
  stat(): Promise<BigIntStats>
  /** Opens the thing itself; only for a regular file. */
  open(flags: number): Promise<FileHandle>
  /** Holds a directory of this one; ENOTDIR for whatever else stands at the name, a link too. */
  enter(name: string): Promise<Held>
  /** Holds what stands at a name of this directory: of a link, the link. */
  look(name: string): Promise<Found>
}

export interface Found {
  readonly held: Held
  /** As it was when it was found. */
  readonly info: BigIntStats
}

/** What was found at a name, held, and the directory that the name is in. */
export interface Standing {
  readonly directory: Held
  readonly name: string
  readonly found: Found
}

/** Null: what stands at the root's path now is not the root. */
export type HoldRoot = (root: Root) => Promise<Held | null>
