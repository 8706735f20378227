import { AppError } from '../../base/errors.ts'
import { equalBytes, newSha256 } from '../../identity/hash.ts'
import type { SignedStdin } from '../../protocol/exec.ts'
import { STDIN_PIECE_BYTES } from '../../protocol/limits.ts'

/** What is known of the bytes so far: the piece that they belong to is not whole, is the signed one, or is not. */
export type PieceVerdict = 'incomplete' | 'signed' | 'wrong'

/** Holds stdin against what the Request signed, piece by piece. */
export class PieceCheck {
  readonly #signed: SignedStdin
  #hash = newSha256()
  #received = 0
  /** Pieces that are whole and fit. */
  #fitting = 0

  constructor(signed: SignedStdin) {
    this.#signed = signed
  }

  /** The next bytes. Throws `malformed` when they belong to two pieces. */
  take(data: Uint8Array, eof: boolean): PieceVerdict {
    const { len, pieces } = this.#signed
    this.#received += data.length
    if (this.#received > len || (eof && this.#received < len)) return 'wrong'
    const end = Math.min((this.#fitting + 1) * STDIN_PIECE_BYTES, len)
    if (this.#received > end) throw new AppError('malformed', 'a stdin frame with bytes of two pieces')
    this.#hash.update(data)
    const expected = pieces[this.#fitting]
    // All pieces fit already: this is the end, which came by itself.
    if (expected === undefined) return 'signed'
    if (this.#received < end) return 'incomplete'
    if (!equalBytes(this.#hash.digest(), expected)) return 'wrong'
    this.#hash = newSha256()
    this.#fitting += 1
    return 'signed'
  }
}
