import { AppError } from '../../base/errors.ts'
import { DM_PROTOCOL, LINK_PROTOCOL } from '../../protocol/link.ts'

/**
 * Saves the round trip of protocol negotiation (multistream-select 1.0.0): the opener of one of our own
 * streams writes its first bytes right behind its proposal. libp2p's `negotiateFully: false` is meant
 * for this and does nothing, so the proposal is written as the muxer makes the stream, and the peer's
 * agreement is taken off the front of what comes back.
 */
const EARLY_PROTOCOLS: ReadonlySet<string> = new Set([LINK_PROTOCOL, DM_PROTOCOL])

export const isEarlyProtocol = (protocol: string): boolean => EARLY_PROTOCOLS.has(protocol)

const line = (text: string): Buffer => {
  const bytes = Buffer.from(`${text}\n`, 'utf8')
  return Buffer.concat([Buffer.of(bytes.length), bytes])
}

/** Both the proposal and the agreement: each line behind its length, which is below 128. */
export const negotiation = (protocol: string): Buffer => Buffer.concat([line('/multistream/1.0.0'), line(protocol)])

/** Takes the peer's agreement off the front of a stream. Throws `malformed` when it is anything else. */
export class ReplyStripper {
  readonly #expected: Buffer
  #seen = 0

  constructor(protocol: string) {
    this.#expected = negotiation(protocol)
  }

  /** What follows the agreement; null while it is incomplete. */
  push(chunk: Uint8Array): Uint8Array | null {
    const length = Math.min(chunk.length, this.#expected.length - this.#seen)
    if (!this.#expected.subarray(this.#seen, this.#seen + length).equals(chunk.subarray(0, length))) {
      throw new AppError('malformed', 'the peer does not speak this protocol')
    }
    this.#seen += length
    return this.#seen < this.#expected.length ? null : chunk.subarray(length)
  }
}
