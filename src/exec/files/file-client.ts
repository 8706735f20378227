import type { Clock } from '../../base/clock.ts'
import { pieceHashes } from '../../identity/piece-hashes.ts'
import {
  FILE_CHANGE,
  FILE_DIGEST,
  FILE_STATUS,
  type FileChangeJson,
  type FileDigestJson,
  type FileListJson,
  type FileStatusJson,
  UPLOAD_STATE,
  type UploadStateJson,
  type WrittenFileJson,
} from '../../protocol/api/files.ts'
import type { ExecClient } from '../client.ts'
import { type StdinSource, bufferedStdin } from '../run-spec.ts'
import { Downloads, type FileRange } from './download.ts'
import { ListOutput } from './file-answers.ts'
import { FileRuns, type FileTarget } from './file-runs.ts'
import { type UploadContent, type UploadRequest, UploadClient } from './upload.ts'

export interface Copy {
  readonly target: FileTarget
  readonly path: string
}

/** Looks at files on other agents, and copies them in both directions. All methods throw as `FileRuns.run`. */
export class FileClient {
  readonly #runs: FileRuns
  readonly #downloads: Downloads
  readonly #uploads: UploadClient
  /** Copies under way. Between their runs they wait for their client. */
  readonly #underWay = new Set<Copy>()

  constructor(deps: { readonly runner: Pick<ExecClient, 'run'>; readonly clock: Clock }) {
    const runs = new FileRuns(deps)
    this.#runs = runs
    this.#downloads = new Downloads({ runs })
    this.#uploads = new UploadClient({ runs, clock: deps.clock })
  }

  async stat(target: FileTarget, path: string, signal: AbortSignal): Promise<FileStatusJson> {
    return this.#runs.ask({ target, command: { op: 'stat', path } }, FILE_STATUS, signal)
  }

  async list(target: FileTarget, of: { path: string; recursive: boolean }, signal: AbortSignal): Promise<FileListJson> {
    const output = new ListOutput()
    await this.#runs.run({ target, command: { op: 'list', ...of }, onOutput: (data) => output.push(data) }, signal)
    return output.result()
  }

  /** SHA-256 of the whole file, if it has this version. */
  async digest(target: FileTarget, of: { path: string; version: string | null }, signal: AbortSignal): Promise<FileDigestJson> {
    return this.#runs.ask({ target, command: { op: 'hash', ...of } }, FILE_DIGEST, signal)
  }

  /** How much of an unfinished upload the target has. */
  async received(target: FileTarget, of: { path: string; upload: string }, signal: AbortSignal): Promise<UploadStateJson> {
    return this.#runs.ask({ target, command: { op: 'upload', ...of } }, UPLOAD_STATE, signal)
  }

  async mkdir(target: FileTarget, of: { path: string; mode: number | null }, signal: AbortSignal): Promise<void> {
    await this.#runs.run({ target, command: { op: 'mkdir', ...of }, onOutput: () => undefined }, signal)
  }

  /** The bytes of a file. A whole file ends only if its SHA-256 matches. For a part of one, the caller compares `digest`. */
  download(target: FileTarget, range: FileRange, signal: AbortSignal): AsyncGenerator<Uint8Array, void, undefined> {
    return this.#counted({ target, path: range.path }, this.#downloads.download(target, range, signal))
  }

  /** Adds at most MAX_APPEND_BYTES to the end of a file with this modification time. */
  async append(target: FileTarget, of: { path: string; mtime: string }, data: Uint8Array, signal: AbortSignal): Promise<FileChangeJson> {
    const stdin = (): StdinSource => bufferedStdin(data, pieceHashes(data))
    return this.#runs.ask({ target, command: { op: 'append', ...of }, stdin }, FILE_CHANGE, signal)
  }

  /** Sends content. The file gets its name when all of it has arrived and its SHA-256 matches. */
  async upload(target: FileTarget, request: UploadRequest, content: UploadContent, signal: AbortSignal): Promise<WrittenFileJson> {
    const copy = { target, path: request.path }
    this.#underWay.add(copy)
    try {
      return await this.#uploads.upload(target, request, content, signal)
    } finally {
      this.#underWay.delete(copy)
    }
  }

  get underWay(): readonly Copy[] {
    return [...this.#underWay]
  }

  async *#counted(copy: Copy, bytes: AsyncGenerator<Uint8Array, void, undefined>): AsyncGenerator<Uint8Array, void, undefined> {
    this.#underWay.add(copy)
    try {
      yield* bytes
    } finally {
      this.#underWay.delete(copy)
    }
  }
}
