import type { Hash } from 'node:crypto'
import { unlessAborted } from '../../base/abort.ts'
import { type Clock, within } from '../../base/clock.ts'
import { PieceHashes } from '../../identity/piece-hashes.ts'
import { FILE_CHUNK_BYTES } from '../../protocol/api/files.ts'
import { ByteBuilder } from '../../protocol/lines.ts'
import { type StdinSource, bufferedStdin } from '../run-spec.ts'

/** A chunk is sent incomplete if nothing comes for this long, so that a slow client holds no memory. */
const IDLE_MS = 2_000

/** Counts bytes in memory. `keep` throws if there are too many. */
export interface ChunkMemory {
  keep(bytes: number): void
  release(bytes: number): void
}

/** A part of the content, complete in memory, because the Request signs its hashes before the first byte is sent. */
export interface GatheredChunk {
  readonly length: number
  /** Nothing comes after it. */
  readonly isLast: boolean
  /** The chunk as stdin of a run, again at each call. */
  stdin(): StdinSource
  /** Frees its memory. */
  release(): void
}

export interface GatheringInit {
  readonly clock: Clock
  /** Waits for the place of a chunk in memory. Returns a function that frees it. */
  readonly hold: () => Promise<() => void>
  readonly memory: ChunkMemory
  /** Hash of all content so far. */
  readonly hash: Hash
  readonly signal: AbortSignal
}

/** A chunk that is being filled. */
class OpenChunk {
  readonly #bytes = new ByteBuilder({ max: FILE_CHUNK_BYTES })
  readonly #hashes = new PieceHashes()
  readonly #memory: ChunkMemory
  readonly #leave: () => void
  #released = false

  constructor(deps: { readonly memory: ChunkMemory; readonly leave: () => void }) {
    this.#memory = deps.memory
    this.#leave = deps.leave
  }

  get isFull(): boolean {
    return this.#bytes.length >= FILE_CHUNK_BYTES
  }

  /** Takes bytes, and returns those that do not fit. */
  add(part: Uint8Array): Uint8Array {
    const fitting = part.subarray(0, FILE_CHUNK_BYTES - this.#bytes.length)
    this.#memory.keep(fitting.length)
    this.#hashes.update(fitting)
    this.#bytes.add(fitting)
    return part.subarray(fitting.length)
  }

  close(isLast: boolean): GatheredChunk {
    const pieces = this.#hashes.digest()
    const bytes = this.#bytes.take()
    return {
      length: bytes.length,
      isLast,
      stdin: () => bufferedStdin(bytes, pieces),
      release: () => this.release(bytes.length),
    }
  }

  release(bytes = this.#bytes.length): void {
    if (this.#released) return
    this.#released = true
    this.#memory.release(bytes)
    this.#leave()
  }
}

/** Divides content into chunks. The last one has `isLast`, and may be empty. The consumer releases each. */
export async function* chunksOf(
  content: AsyncIterable<Uint8Array>,
  { clock, hold, memory, hash, signal }: GatheringInit,
): AsyncGenerator<GatheredChunk, void, undefined> {
  const iterator = content[Symbol.asyncIterator]()
  const openChunk = async (): Promise<OpenChunk> => new OpenChunk({ memory, leave: await hold() })
  let open: OpenChunk | null = null
  const closed = (chunk: OpenChunk, isLast: boolean): GatheredChunk => {
    open = null
    return chunk.close(isLast)
  }
  try {
    let reading = iterator.next()
    for (;;) {
      const next = await unlessAborted(open === null ? reading : within(clock, IDLE_MS, reading), signal)
      if (next === null) {
        yield closed(open!, false)
        continue
      }
      if (next.done === true) break
      for (let rest: Uint8Array = next.value; rest.length > 0;) {
        if (open?.isFull === true) yield closed(open, false)
        open ??= await openChunk()
        rest = open.add(rest)
      }
      hash.update(next.value)
      reading = iterator.next()
    }
    yield closed(open ?? (await openChunk()), true)
  } finally {
    open?.release()
    // Not awaited, because the client may be in the middle of a part.
    void Promise.resolve(iterator.return?.()).catch(() => undefined)
  }
}
