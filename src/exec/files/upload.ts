import { unlessAborted } from '../../base/abort.ts'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { KeyedSemaphore, Semaphore } from '../../base/semaphore.ts'
import { newSha256 } from '../../identity/hash.ts'
import type { AgentId } from '../../protocol/ids.ts'
import { UPLOAD_STATE, WRITTEN_FILE, type WrittenFileJson } from '../../protocol/api/files.ts'
import type { ExpectedFile, FileFinish } from '../../protocol/file-command.ts'
import { type ChunkMemory, type GatheredChunk, type GatheringInit, chunksOf } from './chunk-gathering.ts'
import type { FileRuns, FileTarget } from './file-runs.ts'

/** Chunks of one upload under way at once. A chunk that comes early waits at the target. */
const CHUNKS_AT_ONCE = 2
/** Chunks of all uploads in memory, 16 MiB each, … */
const MAX_CHUNKS_HELD = 12
/** … and of those to one agent, so that an agent that does not read cannot stop uploads to others. */
const MAX_CHUNKS_PER_AGENT = 4

export interface UploadRequest {
  readonly path: string
  /** 32 hex digits that name the upload, so that it can continue later. */
  readonly upload: string
  /** Bytes that the target already has. */
  readonly offset: number
  readonly mode: number | null
  readonly mtime_ms: number | null
  /** SHA-256 of the whole content. Required if `offset` is not 0. */
  readonly sha256: string | null
  readonly expect: ExpectedFile
  /** Whether missing directories are made, if the ACL of the target has `create_dirs`. */
  readonly parents: boolean
}

export interface UploadContent {
  /** From `offset` to the end. Its error ends the upload. */
  readonly bytes: AsyncIterable<Uint8Array>
  /** Counts the bytes of chunks in memory. */
  readonly memory: ChunkMemory
}

/** One upload, from its first chunk to the digest of the file. */
class Upload {
  readonly #runs: FileRuns
  readonly #target: FileTarget
  readonly #request: UploadRequest
  readonly #ending = new AbortController()
  readonly #signal: AbortSignal
  readonly #underWay = new Semaphore({ limit: CHUNKS_AT_ONCE })
  readonly #hash = newSha256()
  #sent: number
  #written: WrittenFileJson | null = null

  constructor(deps: { readonly runs: FileRuns }, of: { target: FileTarget; request: UploadRequest; signal: AbortSignal }) {
    this.#runs = deps.runs
    this.#target = of.target
    this.#request = of.request
    this.#sent = of.request.offset
    this.#signal = AbortSignal.any([of.signal, this.#ending.signal])
  }

  async send({ bytes, memory }: UploadContent, deps: Pick<GatheringInit, 'clock' | 'hold'>): Promise<WrittenFileJson> {
    const writes: Promise<void>[] = []
    try {
      // A chunk is sent when the target has begun to take the one before it. Otherwise early chunks could take all slots of the target.
      let begun: Promise<void> = Promise.resolve()
      for await (const chunk of chunksOf(bytes, { ...deps, memory, hash: this.#hash, signal: this.#signal })) {
        const leave = await this.#turn(begun).catch((error: unknown) => {
          chunk.release()
          throw error
        })
        const started = Promise.withResolvers<void>()
        begun = started.promise
        const write = this.#write(chunk, started.resolve).finally(leave)
        // `#ending` has its error.
        write.catch(() => undefined)
        writes.push(write)
      }
      await Promise.all(writes)
    } catch (error) {
      this.#ending.abort(error)
    }
    await Promise.allSettled(writes)
    this.#signal.throwIfAborted()
    return this.#written!
  }

  async #turn(begun: Promise<void>): Promise<() => void> {
    const leave = await this.#underWay.acquire(this.#signal)
    await unlessAborted(begun, this.#signal)
    return leave
  }

  async #write(chunk: GatheredChunk, onStarted: () => void): Promise<void> {
    const { path, upload, parents } = this.#request
    const offset = this.#sent
    this.#sent += chunk.length
    try {
      const finish = chunk.isLast ? this.#finish() : null
      const run = {
        target: this.#target,
        command: { op: 'write', path, upload, offset, parents, finish },
        stdin: () => chunk.stdin(),
        onStarted,
      } as const
      if (finish === null) await this.#runs.ask(run, UPLOAD_STATE, this.#signal)
      else this.#written = this.#checked(await this.#runs.ask(run, WRITTEN_FILE, this.#signal), finish.sha256)
    } catch (error) {
      this.#ending.abort(error)
      throw error
    } finally {
      onStarted()
      chunk.release()
    }
  }

  #finish(): FileFinish {
    const { path, offset, mode, mtime_ms, expect } = this.#request
    const given = this.#request.sha256
    // The content of an upload that continues is only the rest of the file.
    const sha256 = offset > 0 && given !== null ? given : this.#hash.digest('hex')
    if (given !== null && given !== sha256) throw new AppError('file_error', `${path}: the content differs from the given SHA-256`)
    return { sha256, mode, mtime_ms, expect }
  }

  #checked(written: WrittenFileJson, sha256: string): WrittenFileJson {
    if (written.sha256 === sha256 && written.size === this.#sent) return written
    throw new AppError('file_error', `${this.#request.path}: the file of the agent differs from the content`)
  }
}

/** Sends content to files of other agents chunk by chunk. */
export class UploadClient {
  readonly #deps: { readonly runs: FileRuns; readonly clock: Clock }
  readonly #held = new Semaphore({ limit: MAX_CHUNKS_HELD })
  readonly #heldPerAgent = new KeyedSemaphore<AgentId>({ limit: MAX_CHUNKS_PER_AGENT })

  constructor(deps: { readonly runs: FileRuns; readonly clock: Clock }) {
    this.#deps = deps
  }

  /** Throws as `FileRuns.run`, `bad_request` without a required SHA-256, and the error of the content. */
  async upload(target: FileTarget, request: UploadRequest, content: UploadContent, signal: AbortSignal): Promise<WrittenFileJson> {
    if (request.offset > 0 && request.sha256 === null)
      throw new AppError('bad_request', 'sha256: missing; an upload that continues needs the SHA-256 of the whole file')
    return new Upload(this.#deps, { target, request, signal }).send(content, {
      clock: this.#deps.clock,
      hold: async () => this.#hold(target.agent_id, signal),
    })
  }

  async #hold(agent: AgentId, signal: AbortSignal): Promise<() => void> {
    const leaveAgent = await this.#heldPerAgent.acquire(agent, signal)
    try {
      const leave = await this.#held.acquire(signal)
      return () => {
        leave()
        leaveAgent()
      }
    } catch (error) {
      leaveAgent()
      throw error
    }
  }
}
