import type { Encoding, SessionParams } from './protocol-processes.ts'

/**
 * The file methods of REXD/1, under the names that they have in the messages. Sizes are bytes; what has a `?` may be
 * left out. A time of a file is ISO 8601 with nine digits behind the point, so that equal texts are equal times; the same
 * in whole milliseconds since 1970 is `mtime_ms`.
 */

/** `mtime` of an answer, or its `mtime_ms`. */
export type FileTime = string | number

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
  readonly mtime_ms: number
  readonly encoding: Encoding
  readonly content: string
  /** What was read is no UTF-8: bytes that are none became U+FFFD. */
  readonly lossy?: true
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
  /**
   * A new file in the place of one that is there, where that keeps all of its rights: see `docs/rexd.md`. False unless
   * told: it is written over in its place. Means nothing to `append`, nor to a file that is not there.
   */
  readonly atomic?: boolean
  /** The file must be there and have changed last at exactly this time. */
  readonly expected_mtime?: FileTime
}

export interface FsWriteResult {
  readonly path: string
  readonly bytes_written: number
  readonly mtime: string
  readonly mtime_ms: number
  /** It was not there before. */
  readonly created: boolean
  /** Nobody could see anything between what was there and what is. */
  readonly atomic: boolean
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
  /** Null where the system would not tell, as the times. */
  readonly size: number | null
  readonly mtime: string | null
  readonly mtime_ms: number | null
}

export interface FsListResult {
  readonly path: string
  /** By path. */
  readonly entries: readonly FsEntry[]
  /** There are more; which of them are here is not said. */
  readonly truncated: boolean
}

export interface FsGlobParams extends SessionParams {
  /** One that begins at `/` is below a root, and has no `cwd`. */
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
  readonly mtime_ms: number | null
  /** Permission bits as octal text: `0644`. */
  readonly mode: string | null
  readonly uid: number | null
  readonly gid: number | null
  /** What a link says; null for everything else. */
  readonly symlink_target: string | null
}

export interface FsEditParams extends PathParams {
  /** Empty: all that is there, if anything; the file is made where there is none. */
  readonly old_string: string
  readonly new_string: string
  /** Every place; else the old text must be there exactly once. */
  readonly replace_all?: boolean
  readonly expected_mtime?: FileTime
}

export interface FsEditResult {
  readonly path: string
  /** Of the whole file. */
  readonly bytes_written: number
  readonly replacements: number
  readonly mtime: string
  readonly mtime_ms: number
  /** It was not there before. */
  readonly created: boolean
}

export interface FsPatchParams extends SessionParams {
  /** From `*** Begin Patch` to `*** End Patch`; what stands around it means nothing. */
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
