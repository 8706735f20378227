import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { equalBytes, sha256 } from '../../identity/hash.ts'
import { verifyAgent } from '../../identity/signing.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { DRAIN_WAIT_MS, RESTART_WAIT_MS } from '../../protocol/limits/daemon.ts'
import { EXEC_EXIT_DOMAIN, execExit } from '../../protocol/wire/exec.ts'

/**
 * How long after its signature a proven Request may be signed again for another stream of the same peer, while a lost run is looked for.
 */
export const SIGN_AGAIN_MS = 15_000
/** How long after its first signature a proven Request may be signed again after each denial with `draining`. */
export const PROVEN_FOR_MS = DRAIN_WAIT_MS + RESTART_WAIT_MS

interface ProvenRequest {
  readonly digest: string
  /** Monotonic time after which it is never signed again. */
  readonly last: number
  /** The latest signed bytes, as their SHA-256, and the agent that they are for. Null before the first signature. */
  signed: { readonly sha256: Uint8Array; readonly targetPublicKey: Uint8Array } | null
  /** How often it may be signed again, and until which monotonic time. */
  left: number
  until: number
}

/**
 * Requests that an operator proved. A proof is valid once, but a Request that certainly did not run is sent again. It is signed again once
 * without further evidence, and twice after each `draining` that its target signed, because the next one may get lost too.
 */
export class ProvenRequests {
  readonly #clock: Clock
  /** Oldest first. */
  readonly #proven = new Map<RequestId, ProvenRequest>()

  constructor(deps: { readonly clock: Clock }) {
    this.#clock = deps.clock
  }

  /** A repeated proof becomes the newest. */
  add(requestId: RequestId, digest: string): void {
    const now = this.#clock.monotonic()
    this.#proven.delete(requestId)
    this.#proven.set(requestId, { digest, last: now + PROVEN_FOR_MS, signed: null, left: 1, until: now + SIGN_AGAIN_MS })
  }

  /** True if the same Request to the same peer was proven, and may be signed once more. */
  take(requestId: RequestId, digest: string): boolean {
    const now = this.#clock.monotonic()
    for (const [id, { last }] of this.#proven) {
      if (last > now) break
      this.#proven.delete(id)
    }
    const proven = this.#proven.get(requestId)
    if (proven?.digest !== digest || proven.until <= now || proven.left === 0) return false
    proven.left -= 1
    proven.until = Math.min(proven.last, now + SIGN_AGAIN_MS)
    return true
  }

  /** The Request was signed for the agent with this key. */
  signed(requestId: RequestId, body: Uint8Array, targetPublicKey: Uint8Array): void {
    const proven = this.#proven.get(requestId)
    if (proven !== undefined) proven.signed = { sha256: sha256(body), targetPublicKey }
  }

  /**
   * The network process says that the target denied the latest signed Request with `draining`. The Request may then be signed twice more.
   * Throws `malformed` for an Exit that does not show this.
   */
  denied(requestId: RequestId, { body, signature }: { readonly body: Uint8Array; readonly signature: Uint8Array }): void {
    const proven = this.#proven.get(requestId)
    const signed = proven?.signed ?? null
    if (proven === undefined || signed === null) return
    if (!verifyAgent(signed.targetPublicKey, EXEC_EXIT_DOMAIN, body, signature))
      throw new AppError('malformed', 'the denial is not signed by the target')
    const exit = execExit.decode(body)
    if (exit.request_id !== requestId || exit.denial_reason !== 'draining' || !equalBytes(exit.request_sha256, signed.sha256))
      throw new AppError('malformed', 'the denial is of another request, or has another reason')
    // Each signed Request is denied once.
    proven.signed = null
    proven.left = 2
    proven.until = proven.last
  }
}
