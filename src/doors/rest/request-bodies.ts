import type { IncomingMessage, ServerResponse } from 'node:http'
import { Transform } from 'node:stream'
import { AppError } from '../../base/errors.ts'
import { HTTP_TRANSFER_MS } from '../../protocol/limits/rexd.ts'
import { ByteBuilder } from '../../protocol/lines.ts'
import type { RestServices } from './services.ts'

/** Maximum size of a JSON body: 1 MiB of stdin in base64 and the fields around it, with room for a raised limit. */
export const MAX_JSON_BODY = 96 * 1024 * 1024
/**
 * Maximum size of all retained bodies together: two of the largest, or one of 1 MiB for each of 192 runs. As bytes, text and value they
 * occupy up to three times as much memory.
 */
export const MAX_HELD_BODIES = 2 * MAX_JSON_BODY

export interface RequestBody {
  /** Counts bytes that are retained until the answer has ended. Throws `rate_limited`. */
  keep(bytes: number): void
  /** Bytes that are not retained any more. */
  release(bytes: number): void
  /** Ends the time limit, because the required part of the body has arrived. */
  whole(): void
}

/**
 * Bounds the memory of all request bodies together: JSON, and stdin of unknown length. Otherwise one client with the token could exhaust
 * the memory of the process that carries all runs.
 */
export class RequestBodyBudget {
  readonly #deps: Pick<RestServices, 'clock'>
  #held = 0

  constructor(deps: Pick<RestServices, 'clock'>) {
    this.#deps = deps
  }

  /** Disconnects a client whose body is not complete within `HTTP_TRANSFER_MS`. */
  admit(request: IncomingMessage, response: ServerResponse): RequestBody {
    const timer = this.#deps.clock.setTimeout(() => request.destroy(), HTTP_TRANSFER_MS)
    let own = 0
    response.once('close', () => {
      timer.cancel()
      this.#held -= own
      own = 0
    })
    const keep = (bytes: number): void => {
      if (this.#held + bytes > MAX_HELD_BODIES)
        throw new AppError(
          'rate_limited',
          `pending request bodies would exceed ${MAX_HELD_BODIES} bytes; send stdin_len and stdin_sha256 first to stream stdin, or try later`,
        )
      if (response.closed) return
      own += bytes
      this.#held += bytes
    }
    const release = (bytes: number): void => {
      const counted = Math.min(bytes, own)
      own -= counted
      this.#held -= counted
    }
    return { keep, release, whole: () => timer.cancel() }
  }
}

/** Small pieces are combined into chunks of this size, because each stored buffer costs a few hundred bytes. */
const CHUNK_BYTES = 64 * 1024

/** Counts the bytes of a body and passes them on in chunks. */
export const counted = (held: RequestBody): Transform => {
  const gathered = new ByteBuilder({ max: 2 * CHUNK_BYTES })
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      try {
        held.keep(chunk.length)
        gathered.add(chunk)
        done(null, gathered.length < CHUNK_BYTES ? undefined : gathered.take())
      } catch (error) {
        done(error as Error)
      }
    },
    flush: (done) => done(null, gathered.take()),
  })
}
