import { MAX_FILE_CHUNK_BYTES, MAX_FILE_PATH_BYTES } from './limits/files.ts'

/**
 * File commands of the mesh. A file copy is a series of runs of these commands. The target's executor process does them itself, without a
 * program. `[[exec.allow.files]]` of its ACL allows them, never a command of the ACL. The signed argv has the name, an absolute path, and
 * options as `key=value`. A failed command exits with status 1, and its stderr is one line: `PATH: what happened (CODE)`.
 */

/** First character of a file command. A command of an ACL cannot begin with it. */
export const FILE_COMMAND_PREFIX = '@'

/** Status of a file, as `@stat` prints it, in one line of JSON. */
export interface FileFacts {
  readonly type: 'file' | 'directory' | 'symlink' | 'other'
  readonly size: number
  /** Permission bits, such as 0o644. */
  readonly mode: number
  /** Milliseconds since 1970. */
  readonly mtime_ms: number
  /** The same time in ISO 8601 with nine decimals, so that equal texts are equal times. */
  readonly mtime: string
  /** Changes with each change of the file. */
  readonly version: string
}

/** One line of `@list`. */
export interface FileListEntry extends Omit<FileFacts, 'version'> {
  /** Path from the listed directory. */
  readonly path: string
}

/** Last line of `@list`. */
export interface FileListEnd {
  /** Entries that were left out for their number, their depth, or a name that is not UTF-8. */
  readonly left_out: number
}

/** Output of `@hash`, in one line of JSON. */
export interface FileDigest {
  readonly size: number
  readonly sha256: string
}

/** Output of `@append`, in one line of JSON. */
export interface FileChange extends Pick<FileFacts, 'mtime' | 'mtime_ms'> {
  /** The file is new. */
  readonly created: boolean
}

/** Output of the last `@write` of a file, in one line of JSON. */
export type WrittenFile = FileDigest & FileChange

/** Output of `@upload`, and of each `@write` that is not the last, in one line of JSON. */
export interface UploadState {
  /** Bytes that the target has. The next `@write` begins there. */
  readonly received: number
}

/** Rights and time of a new file. Null means the target's default. */
export interface FileAttributes {
  readonly mode: number | null
  readonly mtime_ms: number | null
}

/** An upload fails if something has the name and it must be `absent`, or if the file has another version. Null accepts any file. */
export type ExpectedFile = 'absent' | (string & {}) | null

/** Content and attributes of a finished file. */
export interface FileFinish extends FileAttributes {
  readonly sha256: string
  readonly expect: ExpectedFile
}

export type FileCommand =
  /** Prints a `FileFacts`. A final link is followed. */
  | { readonly op: 'stat'; readonly path: string }
  /** Prints a `FileListEntry` per line, then a `FileListEnd`. */
  | { readonly op: 'list'; readonly path: string; readonly recursive: boolean }
  /** Prints bytes of the file. Fails with ESTALE if the file has another version. */
  | { readonly op: 'read'; readonly path: string; readonly offset: number; readonly length: number; readonly version: string | null }
  /** Prints a `FileDigest`. Fails with ESTALE like `read`. */
  | { readonly op: 'hash'; readonly path: string; readonly version: string | null }
  /** Prints the `UploadState` of an unfinished upload, which is 0 bytes for an unknown one. */
  | { readonly op: 'upload'; readonly path: string; readonly upload: string }
  /**
   * Adds stdin to an upload at this offset. A `@write` that comes early waits for the one before it. With `finish`, it compares the
   * SHA-256 of the whole content, and then gives the file its name.
   */
  | {
      readonly op: 'write'
      readonly path: string
      /** Chosen by the requester: 32 hex digits. */
      readonly upload: string
      readonly offset: number
      /** Whether missing directories are made, if the ACL has `create_dirs`. */
      readonly parents: boolean
      readonly finish: FileFinish | null
    }
  /** Adds stdin to the end of an existing file. The file must have this modification time, so that a repeated command fails. */
  | { readonly op: 'append'; readonly path: string; readonly mtime: string }
  /** Creates a directory, and those above it below the root. Does nothing if the directory exists. */
  | { readonly op: 'mkdir'; readonly path: string; readonly mode: number | null }

export type FileOperation = FileCommand['op']

/** True for operations that need `write = true`. */
export const changesFiles = ({ op }: Pick<FileCommand, 'op'>): boolean => op !== 'stat' && op !== 'list' && op !== 'read' && op !== 'hash'

const HEX_32 = /^[0-9a-f]{32}$/
const HEX_64 = /^[0-9a-f]{64}$/
const VERSION = /^[0-9a-f.-]{1,128}$/
const EXPECTED = /^(absent|[0-9a-f.-]{1,128})$/
/** A modification time, as `FileFacts.mtime` has it. */
export const MTIME = /^[+-]?\d{4,6}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$/

/** True if argv names a file command, valid or not. */
export const isFileCommand = (argv: readonly string[]): boolean => argv[0]?.startsWith(FILE_COMMAND_PREFIX) === true

const option = (key: string, value: string | number | null): string[] => (value === null ? [] : [`${key}=${value}`])
const modeText = (mode: number | null): string | null => (mode === null ? null : mode.toString(8).padStart(4, '0'))

/** Returns the argv of a file command. `parseFileCommand` is its inverse. */
export const fileCommandArgv = (command: FileCommand): string[] => {
  const { op, path } = command
  const words = [`${FILE_COMMAND_PREFIX}${op}`, path]
  switch (op) {
    case 'stat':
      return words
    case 'list':
      return [...words, ...option('recursive', command.recursive ? 'true' : null)]
    case 'read':
      return [...words, ...option('offset', command.offset), ...option('length', command.length), ...option('version', command.version)]
    case 'hash':
      return [...words, ...option('version', command.version)]
    case 'upload':
      return [...words, ...option('upload', command.upload)]
    case 'write': {
      const { sha256, mode, mtime_ms, expect } = command.finish ?? { sha256: null, mode: null, mtime_ms: null, expect: null }
      return [
        ...words,
        ...option('upload', command.upload),
        ...option('offset', command.offset),
        ...option('parents', command.parents ? null : 'false'),
        ...option('sha256', sha256),
        ...option('mode', modeText(mode)),
        ...option('mtime_ms', mtime_ms),
        ...option('expect', expect),
      ]
    }
    case 'append':
      return [...words, ...option('mtime', command.mtime)]
    case 'mkdir':
      return [...words, ...option('mode', modeText(command.mode))]
  }
}

/** Options of a command, each at most once. Null if one is malformed. */
const optionsOf = (words: readonly string[]): Map<string, string> | null => {
  const options = new Map<string, string>()
  for (const word of words) {
    const [, key, value] = /^([a-z0-9_]+)=([\x21-\x7e]+)$/.exec(word) ?? []
    if (key === undefined || value === undefined || options.has(key)) return null
    options.set(key, value)
  }
  return options
}

/** Takes options out of a map. A malformed value makes `valid` false. */
class OptionReader {
  valid = true
  readonly #options: Map<string, string>

  constructor(options: Map<string, string>) {
    this.#options = options
  }

  text(key: string, pattern: RegExp): string | null {
    const value = this.#options.get(key)
    if (value === undefined) return null
    this.#options.delete(key)
    this.valid &&= pattern.test(value)
    return value
  }

  number(key: string, max = Number.MAX_SAFE_INTEGER): number | null {
    const text = this.text(key, /^(0|[1-9]\d{0,15})$/)
    if (text === null) return null
    const value = Number(text)
    this.valid &&= value <= max
    return value
  }

  mode(): number | null {
    const text = this.text('mode', /^[0-7]{4}$/)
    return text === null ? null : Number.parseInt(text, 8)
  }

  required<T>(value: T | null, otherwise: T): T {
    this.valid &&= value !== null
    return value ?? otherwise
  }

  get finished(): boolean {
    return this.valid && this.#options.size === 0
  }
}

const isPlainName = (name: string): boolean => !/^\.{0,2}$|\0/.test(name)

/** An absolute path without `.`, `..`, double slashes, NUL and a slash at its end. */
export const isPlainPath = (path: string): boolean =>
  path === '/' ||
  (path.startsWith('/') &&
    path.isWellFormed() &&
    Buffer.byteLength(path) <= MAX_FILE_PATH_BYTES &&
    path.slice(1).split('/').every(isPlainName))

const isKnown = (op: string): op is FileOperation => ['stat', 'list', 'read', 'hash', 'upload', 'write', 'append', 'mkdir'].includes(op)

/** Null if it is not exactly a file command. */
export const parseFileCommand = (argv: readonly string[]): FileCommand | null => {
  const [name = '', path = '', ...words] = argv
  const op = name.slice(FILE_COMMAND_PREFIX.length)
  const options = optionsOf(words)
  if (!isFileCommand(argv) || !isKnown(op) || !isPlainPath(path) || options === null) return null
  const reader = new OptionReader(options)
  const command = read(op, path, reader)
  return reader.finished ? command : null
}

const read = (op: FileOperation, path: string, options: OptionReader): FileCommand => {
  const version = (): string | null => options.text('version', VERSION)
  const upload = (): string => options.required(options.text('upload', HEX_32), '')
  switch (op) {
    case 'stat':
      return { op, path }
    case 'list':
      return { op, path, recursive: options.text('recursive', /^true$/) !== null }
    case 'read': {
      const offset = options.number('offset') ?? 0
      const length = options.number('length', MAX_FILE_CHUNK_BYTES) ?? MAX_FILE_CHUNK_BYTES
      return { op, path, offset, length, version: version() }
    }
    case 'hash':
      return { op, path, version: version() }
    case 'upload':
      return { op, path, upload: upload() }
    case 'write': {
      const sha256 = options.text('sha256', HEX_64)
      const parents = options.text('parents', /^false$/) === null
      const fields = { op, path, upload: upload(), offset: options.number('offset') ?? 0, parents } as const
      // The other options belong to a finished file.
      if (sha256 === null) return { ...fields, finish: null }
      const [mode, mtime_ms, expect] = [options.mode(), options.number('mtime_ms'), options.text('expect', EXPECTED)]
      return { ...fields, finish: { sha256, mode, mtime_ms, expect } }
    }
    case 'append':
      return { op, path, mtime: options.required(options.text('mtime', MTIME), '') }
    case 'mkdir':
      return { op, path, mode: options.mode() }
  }
}

/** The line that a failed command writes to stderr. */
export const fileErrorLine = (path: string, message: string, code: string): string => `${path}: ${message} (${code})\n`

/** Code and text of such a line. Null for other text. */
export const readFileError = (stderr: string): { readonly message: string; readonly code: string } | null => {
  const [, message, code] = /^(.*) \(([A-Za-z0-9_]+)\)\n?$/s.exec(stderr) ?? []
  return message === undefined || code === undefined ? null : { message, code }
}
