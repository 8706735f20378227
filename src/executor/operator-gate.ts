import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import { checkOperatorProof } from '../identity/operator-proof.ts'
import type { Operation } from './port/messages.ts'

/** Lets through what an operator proved, once. */
export class OperatorGate {
  readonly #clock: Clock
  readonly #key: Uint8Array
  /** Nonces of proofs that are still fresh, and until when. Only genuine ones get here, so an operator alone could fill it. */
  readonly #used = new Map<string, number>()

  constructor(components: { clock: Clock }, init: { key: Uint8Array }) {
    this.#clock = components.clock
    this.#key = init.key
  }

  /** Throws `operator_proof_required` for a proof that is missing, wrong, stale, or was used before. */
  check(operation: Operation, body: Uint8Array, proof: string): void {
    const now = this.#clock.now()
    for (const [nonce, until] of this.#used) if (until < now) this.#used.delete(nonce)
    if (proof === '') throw refused('this needs the proof of an operator; use the x0x command, which makes it from operator.key')
    const genuine = checkOperatorProof(this.#key, operation, body, proof, now)
    if (genuine === null)
      throw refused("the operator's proof is wrong or older than a minute; check that the command uses this daemon's data directory")
    if (this.#used.has(genuine.nonce)) throw refused("the operator's proof was used before; make a new one")
    this.#used.set(genuine.nonce, genuine.fresh_until_ms)
  }
}

const refused = (message: string): AppError => new AppError('operator_proof_required', message)
