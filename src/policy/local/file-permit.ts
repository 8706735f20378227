/** What a file operation does to what stands at its path. */
export type FileAccess = 'read' | 'write'

/** A directory that callers may look into: as the configuration names it, and the very directory that it meant when it was read. */
export interface Root {
  /** Absolute, as the configuration has it, without `.`, `..` and doubled slashes. */
  readonly path: string
  /** The same with every link resolved. */
  readonly real: string
  readonly dev: bigint
  readonly ino: bigint
}

/** All that is allowed of one file operation. */
export interface FilePermitFields {
  readonly access: FileAccess
  /** The root that the path is below, or is. */
  readonly root: Root
  /** Names from the root to what is meant, none of them empty, `.` or `..`; empty = the root itself. */
  readonly names: readonly string[]
  /** Every root of the session: a link may lead from one to another. */
  readonly roots: readonly Root[]
  /** The most bytes of content that one operation may give out. */
  readonly max_read_bytes: number
}

declare const brand: unique symbol

/** Made by `authorize` alone, frozen through and through. */
export interface FilePermit extends FilePermitFields {
  readonly [brand]: true
}

const permits = new WeakSet<object>()

/** For `authorize` alone (a test holds every other file to that). Copies, freezes and marks. */
export const sealFilePermit = (fields: FilePermitFields): FilePermit => {
  const permit = Object.freeze({
    access: fields.access,
    root: Object.freeze({ ...fields.root }),
    names: Object.freeze([...fields.names]),
    roots: Object.freeze(fields.roots.map((root) => Object.freeze({ ...root }))),
    max_read_bytes: fields.max_read_bytes,
  })
  permits.add(permit)
  return permit as unknown as FilePermit
}

/** True for the very object that `authorize` made; a copy or a likeness of one is none. */
export const isFilePermit = (thing: unknown): thing is FilePermit => typeof thing === 'object' && thing !== null && permits.has(thing)
