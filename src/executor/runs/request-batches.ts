import { batchLeaf, signBatch } from '../../identity/batch-signing.ts'
import { MAX_BATCH } from '../../protocol/limits.ts'
import type { Signatures } from '../links/signatures.ts'

interface Waiting {
  readonly domain: string
  readonly body: Uint8Array
  /** Once its line is on the disk, or cannot be: then with why. Never rejects. */
  readonly recorded: Promise<{ readonly error: unknown } | null>
  readonly answer: PromiseWithResolvers<Uint8Array>
}

/**
 * What is asked of many peers, signed together: while a signature is being made, whatever comes waits for the next one, which is for all of it.
 * So one Request alone waits for nothing, and those of a fan-out cost a signature for as many as come meanwhile.
 */
export class RequestBatches {
  readonly #signatures: Pick<Signatures, 'sign'>
  readonly #waiting: Waiting[] = []
  #isSigning = false

  constructor(components: { readonly signatures: Pick<Signatures, 'sign'> }) {
    this.#signatures = components.signatures
  }

  /** A signature for `verifyInBatch`, once `recorded` is settled for all of its batch. Throws what its own `recorded` throws. */
  async sign(domain: string, body: Uint8Array, recorded: Promise<void>): Promise<Uint8Array> {
    const answer = Promise.withResolvers<Uint8Array>()
    const settled = recorded.then(
      () => null,
      (error: unknown) => ({ error }),
    )
    this.#waiting.push({ domain, body, recorded: settled, answer })
    if (!this.#isSigning) void this.#signWaiting()
    return answer.promise
  }

  async #signWaiting(): Promise<void> {
    this.#isSigning = true
    while (this.#waiting.length > 0) {
      const batch = this.#waiting.splice(0, MAX_BATCH)
      const made = this.#made(batch)
      void this.#answerAll(batch, made)
      await made.catch(() => undefined)
    }
    this.#isSigning = false
  }

  async #made(batch: readonly Waiting[]): Promise<Uint8Array[]> {
    const [first] = batch
    if (batch.length === 1) return [await this.#signatures.sign(first!.domain, first!.body)]
    return signBatch(
      this.#signatures,
      batch.map(({ domain, body }) => batchLeaf(domain, body)),
    )
  }

  /**
   * The signature that one is given is good for all the others, whose path can be told from its own: nobody is given it before all are recorded.
   * Where one cannot be, it is thrown away, and the others are signed anew: who asks for too much breaks nobody else's.
   */
  async #answerAll(batch: readonly Waiting[], made: Promise<Uint8Array[]>): Promise<void> {
    try {
      const signatures = await made
      const failures = await Promise.all(batch.map(async ({ recorded }) => recorded))
      failures.forEach((failure, index) => failure !== null && batch[index]!.answer.reject(failure.error))
      const rest = batch.filter((_, index) => failures[index] === null)
      if (rest.length === 0) return
      const good = rest.length === batch.length ? signatures : await this.#made(rest)
      rest.forEach(({ answer }, index) => answer.resolve(good[index]!))
    } catch (error) {
      for (const { answer } of batch) answer.reject(error)
    }
  }
}
