import type { Encoding, SessionParams } from './protocol-processes.ts'

/**
 * The file methods of REXD/1, under the names that they have in the messages. Sizes are bytes; what has a `?` may be
 * left out. A time of a file is ISO 8601 with nine digits behind the point, so that equal texts are equal times.
 */

export type FileType = 'file' | 'dir' | 'symlink' | 'other'

export interface PathParams extends SessionParams {
  /** Relative paths begin at the session's first root. */
  readonly path: string
}

export interface FsReadParams extends PathParams {
  /** The first byte; 0 unless told. */
  readonly offset?: number
  /** At most the session's `max_file_read_bytes`, which it is unless told. */
  readonly length?: number
  readonly encoding?: Encoding
}

export interface FsReadResult {
  readonly path: string
  /** Of the whole file. */
  readonly size: number
  readonly mtime: string
  readonly encoding: Encoding
  readonly content: string
  /** The file goes on behind the content. */
  readonly truncated: boolean
}

/** `create`: nothing may stand there. `replace`: whether it was there or not. `append`: behind what is there, if anything. */
export type WriteMode = 'create' | 'replace' | 'append'

export interface FsWriteParams extends PathParams {
  /** At most 2 MiB. */
  readonly content: string
  readonly encoding?: Encoding
  /** `replace` unless told. */
  readonly mode?: WriteMode
  /** Make the directories that are missing on the way. */
  readonly mkdir_parents?: boolean
  /** Others see the file before or after, nothing between; true unless told. Means nothing to `append`. */
  readonly atomic?: boolean
  /** The file must be there and have changed last at exactly this time. */
  readonly expected_mtime?: string
}

export interface FsWriteResult {
  readonly path: string
  readonly bytes_written: number
  readonly mtime: string
  /** It was not there before. */
  readonly created: boolean
}

export interface FsListParams extends PathParams {
  readonly recursive?: boolean
  /** 10,000 unless told, and at most. */
  readonly max_entries?: number
}

export interface FsEntry {
  readonly name: string
  /** Whole. */
  readonly path: string
  readonly type: FileType
  /** Null where the system would not tell, as `mtime`. */
  readonly size: number | null
  readonly mtime: string | null
}

export interface FsListResult {
  readonly path: string
  /** By path. */
  readonly entries: readonly FsEntry[]
  /** There are more; which of them are here is not said. */
  readonly truncated: boolean
}

export interface FsGlobParams extends SessionParams {
  readonly pattern: string
  /** Where the pattern begins: the first root unless told. */
  readonly cwd?: string
  /** 10,000 unless told, and at most. */
  readonly max_matches?: number
}

export interface FsGlobResult {
  readonly path: string
  /** Whole paths, sorted. */
  readonly matches: readonly string[]
  readonly truncated: boolean
}

/** Where `exists` is false, all that follows is null. */
export interface FsStatResult {
  readonly path: string
  readonly exists: boolean
  /** Of a link, the link itself. */
  readonly type: FileType | null
  readonly size: number | null
  readonly mtime: string | null
  /** Permission bits as octal text: `0644`. */
  readonly mode: string | null
  readonly uid: number | null
  readonly gid: number | null
  /** What a link says; null for everything else. */
  readonly symlink_target: string | null
}

export interface FsEditParams extends PathParams {
  readonly old_string: string
  readonly new_string: string
  /** Every place; else the old text must be there exactly once. */
  readonly replace_all?: boolean
  readonly expected_mtime?: string
}

export interface FsEditResult {
  readonly path: string
  /** Of the whole file. */
  readonly bytes_written: number
  readonly replacements: number
  readonly mtime: string
}

export interface FsPatchParams extends SessionParams {
  /** From `*** Begin Patch` to `*** End Patch`. */
  readonly patch_text: string
  /** Where relative paths of the patch begin: the first root unless told. */
  readonly cwd?: string
}

/** Whole paths, in the order of the patch. */
export interface FsPatchResult {
  readonly path: string
  readonly added: readonly string[]
  readonly updated: readonly string[]
  readonly deleted: readonly string[]
  readonly moved: readonly { readonly from: string; readonly to: string }[]
}
