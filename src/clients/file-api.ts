import { Readable } from 'node:stream'
import { AppError, attempt } from '../base/errors.ts'
import { octal } from '../base/format.ts'
import {
  FILE_ANSWERS,
  FILE_MODE_HEADER,
  FILE_TIME_HEADER,
  FILE_WAITING_HEADER,
  type FileChangeJson,
  type FileDigestJson,
  type FileListJson,
  type FileStatusJson,
  type FileWaitingJson,
  type WrittenFileJson,
  isPathBelow,
} from '../protocol/api/files.ts'
import { WAITING } from '../protocol/api/run-events.ts'
import type { ExpectedFile } from '../protocol/file-command.ts'
import { isTable, problemOf } from '../protocol/json-table.ts'
import type { ApiCall, LocalApi } from './daemon.ts'

/** A file of an agent, from a certain byte on. */
export interface RemoteContent {
  readonly status: Pick<FileStatusJson, 'size' | 'mode' | 'mtime_ms' | 'version'>
  /** To be read once. It throws if it does not arrive whole. */
  readonly body: AsyncIterable<Uint8Array>
}

/** A part of a file of a certain version. */
export interface FileSpan {
  readonly version: string
  readonly offset: number
  /** Bytes, at least 1. Default: to the end. */
  readonly length?: number
}

/** Content for a file of an agent. */
export interface SentContent {
  /** 32 hex digits that name the upload. */
  readonly upload: string
  /** Bytes that the agent already has. `stream` has the rest. */
  readonly offset: number
  readonly mode: number | null
  readonly mtimeMs: number | null
  /** SHA-256 of the whole, or null if it is not known. */
  readonly sha256: string | null
  /** Default: null. */
  readonly expect?: ExpectedFile
  /** Whether missing directories are made. Default: true. */
  readonly parents?: boolean
  readonly stream: Readable
}

/** Receives the state of a call that waits for an approval of the agent, and null when it waits no longer. */
export type OnFileWaiting = (path: string, state: FileWaitingJson | null) => void

const waitingIn = (headers: ReadonlyMap<string, string>): FileWaitingJson | null => {
  const fields = attempt(() => JSON.parse(headers.get(FILE_WAITING_HEADER) ?? '') as unknown)
  if (!isTable(fields) || problemOf(fields, WAITING) !== null) return null
  return { ...(fields as unknown as FileWaitingJson), type: 'waiting_for_approval' }
}

const notX0xd = (what: string): AppError => new AppError('daemon_unreachable', `the server is not x0xd: ${what}`)

const AS_BYTES = { 'content-type': 'application/octet-stream' }

/** Files on one agent, through the daemon. All methods throw the daemon's errors, and `daemon_unreachable` for an invalid answer. */
export class FileApi {
  readonly #api: Pick<LocalApi, 'answer' | 'read'>
  readonly #route: string
  readonly #onWaiting: OnFileWaiting | null

  constructor(
    components: { readonly api: Pick<LocalApi, 'answer' | 'read'>; readonly onWaiting?: OnFileWaiting },
    init: { readonly agent: string },
  ) {
    this.#api = components.api
    this.#onWaiting = components.onWaiting ?? null
    this.#route = `/agents/${encodeURIComponent(init.agent)}/files`
  }

  async stat(path: string, signal: AbortSignal): Promise<FileStatusJson> {
    const { ok: _ok, ...status } = await this.#api.read(this.#get({ path, stat: 'true' }, signal), FILE_ANSWERS.status)
    return status
  }

  async list(path: string, recursive: boolean, signal: AbortSignal): Promise<FileListJson> {
    const query = { path, list: 'true', ...(recursive && { recursive: 'true' }) }
    const { entries, left_out } = await this.#api.read(this.#get(query, signal), FILE_ANSWERS.list)
    // Checked again, because files get these names, and the API may be any server.
    if (!entries.every((entry) => isPathBelow(entry.path))) throw notX0xd('a path leads out of the directory')
    return { entries, left_out }
  }

  /** SHA-256 of the whole file, if it has this version. */
  async digest(path: string, version: string, signal: AbortSignal): Promise<FileDigestJson> {
    const asked = this.#get({ path, digest: 'true', version }, signal)
    const { size, sha256 } = await this.#approved(path, asked, async (call) => this.#api.read(call, FILE_ANSWERS.digest))
    return { size, sha256 }
  }

  /** Bytes of an unfinished upload that the agent has. */
  async received(path: string, upload: string, signal: AbortSignal): Promise<number> {
    return (await this.#api.read(this.#get({ path, upload }, signal), FILE_ANSWERS.upload)).received
  }

  async mkdir(path: string, mode: number | null, signal: AbortSignal): Promise<void> {
    const body = { path, ...(mode !== null && { mode: octal(mode) }) }
    const asked = { method: 'POST', path: `${this.#route}/directory`, body, signal } as const
    await this.#approved(path, asked, async (call) => this.#api.read(call, FILE_ANSWERS.made))
  }

  /** Opens a file at a byte of a version, or a whole file of any version. */
  async download(path: string, from: FileSpan | null, signal: AbortSignal): Promise<RemoteContent> {
    const last = from?.length === undefined ? '' : from.offset + from.length - 1
    const headers = from === null ? {} : { 'if-match': `"${from.version}"`, range: `bytes=${from.offset}-${last}` }
    const asked = { ...this.#get({ path }, signal), headers }
    const answer = await this.#approved(path, asked, async (call) => this.#api.answer(call))
    const numberOf = (name: string): number => {
      const value = answer.headers.get(name)
      if (value === undefined || !/^-?[0-9]{1,16}$/.test(value)) throw notX0xd(`the header ${name} is missing`)
      return Number(value)
    }
    const version = /^"([0-9a-f.-]{1,128})"$/.exec(answer.headers.get('etag') ?? '')?.[1]
    const mode = answer.headers.get(FILE_MODE_HEADER)
    if (version === undefined || mode === undefined || !/^[0-7]{4}$/.test(mode)) throw notX0xd('its answer is not a file')
    if (answer.status !== (from === null ? 200 : 206)) throw notX0xd('it returned another part of the file')
    const whole = /\/([0-9]{1,16})$/.exec(answer.headers.get('content-range') ?? '')?.[1]
    const size = from === null ? numberOf('content-length') : Number(whole)
    if (!Number.isSafeInteger(size)) throw notX0xd('its answer has no size')
    return { status: { size, mode: Number.parseInt(mode, 8), mtime_ms: numberOf(FILE_TIME_HEADER), version }, body: answer.body }
  }

  /** Sends a file. It has its name on the agent when this resolves. */
  async upload(path: string, content: SentContent, signal: AbortSignal): Promise<WrittenFileJson> {
    const { upload, offset, mode, mtimeMs, sha256, expect = null, parents = true, stream } = content
    const query = this.#query({
      path,
      upload,
      ...(offset > 0 && { offset: String(offset) }),
      ...(mode !== null && { mode: octal(mode) }),
      ...(mtimeMs !== null && { mtime_ms: String(mtimeMs) }),
      ...(sha256 !== null && { sha256 }),
      ...(expect !== null && { expect }),
      ...(!parents && { parents: 'false' }),
    })
    const asked = { method: 'PUT', path: query, headers: AS_BYTES, stream, signal } as const
    const { ok: _ok, ...written } = await this.#approved(path, asked, async (call) => this.#api.read(call, FILE_ANSWERS.written))
    return written
  }

  /** Adds bytes to the end of a file with this modification time. */
  async append(path: string, mtime: string, data: Uint8Array, signal: AbortSignal): Promise<FileChangeJson> {
    const query = `path=${encodeURIComponent(path)}&mtime=${encodeURIComponent(mtime)}`
    const call = {
      method: 'POST',
      path: `${this.#route}/append?${query}`,
      headers: AS_BYTES,
      stream: Readable.from([data]),
      signal,
    } as const
    const { ok: _ok, ...change } = await this.#api.read(call, FILE_ANSWERS.appended)
    return change
  }

  /** Makes a call that may wait for an approval. */
  async #approved<T>(path: string, asked: ApiCall, make: (call: ApiCall) => Promise<T>): Promise<T> {
    const tell = this.#onWaiting
    if (tell === null) return make(asked)
    const onInterim = (headers: ReadonlyMap<string, string>): void => {
      const state = waitingIn(headers)
      if (state !== null) tell(path, state)
    }
    try {
      return await make({ ...asked, onInterim })
    } finally {
      tell(path, null)
    }
  }

  #get(query: Readonly<Record<string, string>>, signal: AbortSignal) {
    return { method: 'GET', path: this.#query(query), signal } as const
  }

  #query(query: Readonly<Record<string, string>>): string {
    return `${this.#route}?${Object.entries(query)
      .map(([name, value]) => `${name}=${encodeURIComponent(value)}`)
      .join('&')}`
  }
}
