import { posix } from 'node:path'
import type { Method, Params } from '../protocol/rexd/methods.ts'
import type { Result } from '../protocol/rexd/results.ts'
import type { Connection } from './connection.ts'
import { type DataSource, contentChunks, toText } from './data.ts'
import { RexdError, RexdProtocolError } from './errors.ts'
import { type CamelCase, camelCase, present } from './fields.ts'
import { bytesOf, resultOf } from './incoming.ts'
import type { CallOptions } from './promises.ts'
import type { SessionLink } from './session-link.ts'

/** Chunks requested ahead. About as much is in transit at a gigabit and 30 ms. */
export const READ_AHEAD = 3

export interface ReadOptions extends CallOptions {
  /** First byte, by default 0. */
  readonly offset?: number
  /** Number of bytes, by default to the end of the file. */
  readonly length?: number
  /** Accept that the file changes meanwhile, such as an appended log. Otherwise a change is a `conflict`. */
  readonly mayChange?: boolean
}

/** An answer of `fs.read`. `bytes` replace its empty content if they came as they are. */
export type ReadAnswer = Result<'fs.read'> & { readonly bytes?: Uint8Array }

/** The part of a file in one message. */
export interface FilePart {
  readonly data: Uint8Array
  /** Size of the whole file. */
  readonly size: number
  readonly mtime: string
}

interface ExpectedMtime {
  readonly length: number
  readonly answer: Promise<ReadAnswer>
}

/** Reads a range of a file in one or more messages. Once the size is known, it requests some ahead to hide the round trips. */
export async function* fileParts(
  read: (offset: number, length: number) => Promise<ReadAnswer>,
  { path, chunk, offset: first = 0, length = Infinity, mayChange = false }: ReadOptions & { readonly path: string; readonly chunk: number },
): AsyncGenerator<FilePart, void, undefined> {
  let before: Result<'fs.read'> | null = null
  let ahead: ExpectedMtime[] = []
  const ask = (at: number): void => {
    const asked = Math.min(chunk, length - at)
    const answer = read(first + at, asked)
    // When the reader stops, no code handles a rejection of the parts read ahead.
    answer.catch(() => undefined)
    ahead.push({ length: asked, answer })
  }
  for (let at = 0; ;) {
    if (ahead.length === 0) ask(at)
    const { length: asked, answer } = ahead.shift()!
    const result: ReadAnswer = await answer
    if (before !== null && !mayChange) requireSame(before, result, path)
    const data = result.bytes ?? bytesOf(result.content, result.encoding, 'fs.read')
    if (data.length > asked) throw new RexdProtocolError(`fs.read: ${data.length} bytes, where ${asked} were requested`)
    at += data.length
    const isLast = !result.truncated || at >= length
    // If a server sends less than requested, parts are read one by one, because the start of the next is unknown.
    const goesOn = !isLast && data.length === asked
    if (!goesOn) ahead = []
    const end = goesOn ? Math.min(length, result.size - first) : at
    for (let next = at + chunk * ahead.length; ahead.length < READ_AHEAD && next < end; next += chunk) ask(next)
    yield { data, size: result.size, mtime: result.mtime }
    if (isLast) return
    if (data.length === 0) throw new RexdProtocolError('fs.read: no bytes before the end of the file')
    before = result
  }
}

const requireSame = (before: Result<'fs.read'>, now: Result<'fs.read'>, path: string): void => {
  if (before.mtime === now.mtime && before.size === now.size) return
  const data = { code: 'conflict', path, reason: 'changed', expected_mtime: before.mtime, mtime: now.mtime }
  throw new RexdError({ code: -32_006, message: `${path}: it was changed at ${now.mtime}, while it was read`, data })
}

/** Default limit of `readAll`. */
const MAX_READ_ALL = 64 * 1024 * 1024

export type WriteMode = NonNullable<Params<'fs.write'>['mode']>
export type FileWritten = CamelCase<Result<'fs.write'>>
export type FileListing = CamelCase<Result<'fs.list'>>
export type FileMatches = CamelCase<Result<'fs.glob'>>
export type FileStatus = CamelCase<Result<'fs.stat'>>
export type FileEdited = CamelCase<Result<'fs.edit'>>
export type FilesPatched = CamelCase<Result<'fs.patch'>>

export interface ReadAllOptions extends ReadOptions {
  /** Limit in bytes, by default 64 MiB. */
  readonly max?: number
}

export interface WriteOptions extends CallOptions {
  /** Default: `replace`. */
  readonly mode?: WriteMode
  /** Make missing parent directories. */
  readonly mkdirParents?: boolean
  /** Replace an existing file by a new one, if that keeps all its permissions. Default: false. */
  readonly atomic?: boolean
  /** The `mtime` or `mtimeMs` that the file must have. Any other is a `conflict`. */
  readonly expectedMtime?: string | number
}

export interface EditOptions extends CallOptions {
  /** Empty for the whole content, if any. A missing file is made. */
  readonly oldString: string
  readonly newString: string
  /** Replace all occurrences. Otherwise the old text must occur exactly once. */
  readonly replaceAll?: boolean
  readonly expectedMtime?: string | number
}

export interface FileContent {
  readonly data: Uint8Array
  /** Size of the whole file in bytes. */
  readonly size: number
  /** For `expectedMtime` of a change. */
  readonly mtime: string
}

export interface RemoteFilesInit {
  /** Start of relative paths, or null for the session's first root. */
  readonly cwd: string | null
  /** Bytes in one message. */
  readonly readChunk: number
  readonly writeChunk: number
}

type FileMethod = Extract<Method, `fs.${string}`>
type Fields<M extends FileMethod> = { readonly [Key in keyof Omit<Params<M>, 'session_id'>]: Params<M>[Key] | undefined }

/** The required fields of answers. */
const NEEDED: { readonly [M in FileMethod]: readonly (keyof Result<M>)[] } = {
  'fs.read': ['size', 'mtime', 'encoding', 'content', 'truncated'],
  'fs.write': ['bytes_written', 'mtime', 'created'],
  'fs.list': ['entries', 'truncated'],
  'fs.glob': ['matches', 'truncated'],
  'fs.stat': ['exists'],
  'fs.edit': ['bytes_written', 'replacements', 'mtime'],
  'fs.patch': ['added', 'updated', 'deleted', 'moved'],
}

/** Files of a session. All methods reject with `RexdError`, such as `file_not_found`, `forbidden_path`, `conflict`, `file_error`. */
export class RemoteFiles {
  readonly #connection: Connection
  readonly #link: SessionLink
  readonly #init: RemoteFilesInit

  constructor(components: { connection: Connection; link: SessionLink }, init: RemoteFilesInit) {
    this.#connection = components.connection
    this.#link = components.link
    this.#init = init
  }

  /** Yields a file, or a range of it, in chunks of at most 1 MiB, requesting up to three ahead. */
  async *read(path: string, options: ReadOptions = {}): AsyncGenerator<Uint8Array, void, undefined> {
    for await (const { data } of this.#parts(path, options)) if (data.length > 0) yield data
  }

  /** Reads it whole. Rejects with a `RangeError` above `max` bytes. */
  async readAll(path: string, { max = MAX_READ_ALL, ...options }: ReadAllOptions = {}): Promise<FileContent> {
    const parts: Uint8Array[] = []
    let length = 0
    let about = { size: 0, mtime: '' }
    for await (const { data, size, mtime } of this.#parts(path, options)) {
      length += data.length
      if (length > max) throw new RangeError(`${path} has more than ${max} bytes`)
      parts.push(data)
      about = { size, mtime }
    }
    return { data: Buffer.concat(parts, length), ...about }
  }

  /** Like `readAll`, as UTF-8. Invalid bytes become U+FFFD. */
  async readText(path: string, options: ReadAllOptions = {}): Promise<string> {
    return toText((await this.readAll(path, options)).data)
  }

  /**
   * Writes a file. Up to 1 MiB it is written at once. Above that, the first chunk creates or replaces the file and the rest is appended.
   * Others see the file grow, and a failure or abort leaves its beginning. Another writer's change in between is a `conflict`. To avoid a
   * partial file, write under another name and move it with a command.
   */
  async write(path: string, content: DataSource, options: WriteOptions = {}): Promise<FileWritten> {
    const { mode = 'replace', mkdirParents, atomic, expectedMtime, signal } = options
    const fixed = { path: this.#path(path), encoding: 'base64', atomic } as const
    let how: Pick<Fields<'fs.write'>, 'mode' | 'mkdir_parents' | 'expected_mtime'> = {
      mode,
      mkdir_parents: mkdirParents,
      expected_mtime: expectedMtime,
    }
    const written: Result<'fs.write'>[] = []
    for await (const data of contentChunks(content, this.#init.writeChunk)) {
      signal?.throwIfAborted()
      const answer = await this.#call('fs.write', { ...fixed, ...how, content: '' }, signal, data)
      how = { mode: 'append', expected_mtime: answer.mtime }
      written.push(answer)
    }
    // There is always at least one chunk, which may be empty.
    const bytes_written = written.reduce((sum, answer) => sum + answer.bytes_written, 0)
    return camelCase({ ...written[0]!, mtime: written.at(-1)!.mtime, bytes_written })
  }

  /** The entries of a directory. With `recursive`, also those below it. */
  async list(path = '.', options: CallOptions & { readonly recursive?: boolean; readonly maxEntries?: number } = {}): Promise<FileListing> {
    const { recursive, maxEntries, signal } = options
    return camelCase(await this.#call('fs.list', { path: this.#path(path), recursive, max_entries: maxEntries }, signal))
  }

  /** Paths below a directory that match a pattern. */
  async glob(pattern: string, options: CallOptions & { readonly cwd?: string; readonly maxMatches?: number } = {}): Promise<FileMatches> {
    const { cwd, maxMatches, signal } = options
    return camelCase(await this.#call('fs.glob', { pattern, cwd: this.#directory(cwd), max_matches: maxMatches }, signal))
  }

  /** Status of a path, without following a link. A missing file is a result, not an error. */
  async stat(path: string, { signal }: CallOptions = {}): Promise<FileStatus> {
    return camelCase(await this.#call('fs.stat', { path: this.#path(path) }, signal))
  }

  /** Replaces a text in a file. Rejects with `conflict` if it does not occur, or more than once. */
  async edit(path: string, { oldString, newString, replaceAll, expectedMtime, signal }: EditOptions): Promise<FileEdited> {
    const texts = { old_string: oldString, new_string: newString }
    const params = { path: this.#path(path), ...texts, replace_all: replaceAll, expected_mtime: expectedMtime }
    return camelCase(await this.#call('fs.edit', params, signal))
  }

  /** Applies a patch of several files, `*** Begin Patch` to `*** End Patch`, completely or not at all. */
  async patch(text: string, { cwd, signal }: CallOptions & { readonly cwd?: string } = {}): Promise<FilesPatched> {
    return camelCase(await this.#call('fs.patch', { patch_text: text, cwd: this.#directory(cwd) }, signal))
  }

  async *#parts(path: string, options: ReadOptions): AsyncGenerator<FilePart, void, undefined> {
    const whole = this.#path(path)
    const read = async (offset: number, length: number): Promise<ReadAnswer> => {
      const params = this.#params('fs.read', { path: whole, offset, length, encoding: 'base64' })
      const accept = (result: unknown): ReadAnswer => resultOf(result, 'fs.read', NEEDED['fs.read'])
      const acceptContent = (result: unknown, bytes: Uint8Array): ReadAnswer => ({ ...accept(result), bytes })
      return this.#connection.request({ method: 'fs.read', params, scope: this.#link, signal: options.signal, accept, acceptContent })
    }
    yield* fileParts(read, { ...options, path, chunk: this.#init.readChunk })
  }

  /** Prepends the directory of the session, if it has one. */
  #path(path: string): string {
    const { cwd } = this.#init
    return cwd === null || posix.isAbsolute(path) ? path : posix.join(cwd, path)
  }

  #directory(cwd: string | undefined): string | undefined {
    return cwd === undefined ? (this.#init.cwd ?? undefined) : this.#path(cwd)
  }

  async #call<M extends FileMethod>(
    method: M,
    fields: Fields<M>,
    signal: AbortSignal | undefined,
    content?: Uint8Array,
  ): Promise<Result<M>> {
    const accept = (result: unknown): Result<M> => resultOf(result, method, NEEDED[method])
    return this.#connection.request({ method, params: this.#params(method, fields), scope: this.#link, signal, accept, content })
  }

  #params<M extends FileMethod>(_method: M, fields: Fields<M>): Params<M> {
    return present({ ...fields, session_id: this.#link.id }) as unknown as Params<M>
  }
}
