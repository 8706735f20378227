import { BoundedSet } from '../../base/bounded-collections.ts'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import type { ToExecutor } from '../../executor-api/messages.ts'
import { sha256 } from '../../identity/hash.ts'
import { toHex } from '../../protocol/ids.ts'
import {
  MAX_OWN_TERMINALS,
  TERMINAL_BYTES_PER_SECOND,
  TERMINAL_BYTE_BURST,
  TERMINAL_SIGNATURES_PER_SECOND,
  TERMINAL_SIGNATURE_BURST,
} from '../../protocol/limits/terminal.ts'
import { EXEC_TERMINAL_INPUT_DOMAIN, execTerminalInput } from '../../protocol/wire/terminal.ts'
import type { Signatures } from '../links/signatures.ts'

/** Signs the input of this agent's terminals. The request log has the request of each; what is typed may be a secret and is not logged. */
export class TerminalInputs {
  readonly #signatures: Pick<Signatures, 'sign'>
  /** Digests of signed requests, the least recently used first. */
  readonly #open = new BoundedSet<string>({ max: MAX_OWN_TERMINALS })
  readonly #frames: TokenBucket
  readonly #bytes: TokenBucket

  constructor(deps: { readonly clock: Clock; readonly signatures: Pick<Signatures, 'sign'> }) {
    this.#signatures = deps.signatures
    this.#frames = new TokenBucket(deps, { burst: TERMINAL_SIGNATURE_BURST, perSecond: TERMINAL_SIGNATURES_PER_SECOND })
    this.#bytes = new TokenBucket(deps, { burst: TERMINAL_BYTE_BURST, perSecond: TERMINAL_BYTES_PER_SECOND })
  }

  /** A request for a terminal was signed. */
  opened(request: Uint8Array): void {
    this.#open.add(toHex(sha256(request)))
  }

  /** Throws `not_found` if no request for this terminal was signed, and `rate_limited`. */
  async sign(call: Extract<ToExecutor, { type: 'sign_terminal_input' }>): Promise<{ body: Uint8Array; signature: Uint8Array }> {
    const { request_sha256, seq, data, size } = call
    const request = toHex(request_sha256)
    if (!this.#open.delete(request)) throw new AppError('not_found', 'no request for this terminal was signed')
    this.#open.add(request)
    if (!this.#frames.take() || !this.#bytes.take(data.length)) throw new AppError('rate_limited', 'too much terminal input at once')
    const body = execTerminalInput.encode({ request_sha256, seq, data, size })
    return { body, signature: await this.#signatures.sign(EXEC_TERMINAL_INPUT_DOMAIN, body) }
  }
}
