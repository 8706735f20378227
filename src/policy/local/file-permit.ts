export type FileAccess = 'read' | 'write'

/** A directory that clients may access: its configured path and the directory that it led to when the file was read. */
export interface Root {
  /** Absolute path from the configuration, without `.`, `..` and double slashes. */
  readonly path: string
  /** The same path with all links resolved. */
  readonly real: string
  readonly dev: bigint
  readonly ino: bigint
}

/** What one file operation may access. */
export interface FilePermitFields {
  readonly access: FileAccess
  readonly root: Root
  /** Path components from the root, without empty ones, `.` or `..`. Empty for the root itself. */
  readonly names: readonly string[]
  /** All roots of the session, because a link may lead from one to another. */
  readonly roots: readonly Root[]
  /** Maximum number of bytes that one operation may return. */
  readonly max_read_bytes: number
}

declare const brand: unique symbol

/** Made by `authorizeFile` alone and deeply frozen. */
export interface FilePermit extends FilePermitFields {
  readonly [brand]: true
}

const permits = new WeakSet<object>()

/** Copies, freezes and marks a permit. Only `authorizeFile` may call it. A test checks all other files. */
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

/** True only for the object that `authorizeFile` made, not for a copy. */
export const isFilePermit = (thing: unknown): thing is FilePermit => typeof thing === 'object' && thing !== null && permits.has(thing)
