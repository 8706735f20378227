import type { IncomingMessage, ServerResponse } from 'node:http'
import { Transform } from 'node:stream'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { HTTP_TRANSFER_MS } from '../../protocol/limits/rexd.ts'
import { ByteBuilder } from '../../protocol/lines.ts'

/** A JSON body of the REST door: 1 MiB of stdin in base64 and the fields around it, with room for a raised cap. */
export const MAX_JSON_BODY = 96 * 1024 * 1024
/**
 * Bodies that are kept for all callers together while they come and until their answers are over: two of the largest, or
 * one of 1 MiB for each of 192 runs. In memory they take up to three times as much, as bytes, text and value.
 */
export const MAX_HELD_BODIES = 2 * MAX_JSON_BODY

/** The body of one request, as far as it is kept here. */
export interface RequestBody {
  /** Counts bytes that are kept until the answer is over. Throws `rate_limited`. */
  keep(bytes: number): void
  /** All that has to come in time has come. */
  whole(): void
}

/**
 * What the door keeps for all of its callers together: bodies in JSON, and stdin whose length nobody announced. Whoever
 * has the token could otherwise fill the memory of the process that carries everybody's runs.
 */
export class RequestBodyBudget {
  readonly #clock: Clock
  #held = 0

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
  }

  /** Hangs up on who takes longer than `HTTP_TRANSFER_MS` until its body is whole. */
  admit(request: IncomingMessage, response: ServerResponse): RequestBody {
    const timer = this.#clock.setTimeout(() => request.destroy(), HTTP_TRANSFER_MS)
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
          `bodies of more than ${MAX_HELD_BODIES} bytes are being held for callers; announce stdin_len and stdin_sha256 to stream it, or try later`,
        )
      if (response.closed) return
      own += bytes
      this.#held += bytes
    }
    return { keep, whole: () => timer.cancel() }
  }
}

/** So much is passed on at once: however short the pieces are that it comes in, each costs who keeps it a few hundred bytes. */
const PASSED_BYTES = 64 * 1024

/** Counts the bytes of a body, and passes them on `PASSED_BYTES` at a time. */
export const counted = (held: RequestBody): Transform => {
  const gathered = new ByteBuilder({ max: 2 * PASSED_BYTES })
  return new Transform({
    transform(chunk: Buffer, _encoding, done) {
      try {
        held.keep(chunk.length)
        gathered.add(chunk)
        done(null, gathered.length < PASSED_BYTES ? undefined : gathered.take())
      } catch (error) {
        done(error as Error)
      }
    },
    flush: (done) => done(null, gathered.take()),
  })
}
