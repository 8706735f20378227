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

export interface RequestBatchesComponents {
  readonly signatures: Pick<Signatures, 'sign'>
}

/**
 * What is asked of many peers, signed together: while a signature is being made, whatever comes waits for the next one, which is for all of it.
 * So one Request alone waits for nothing, and those of a fan-out cost a signature for as many as come meanwhile.
 */
export class RequestBatches {
  readonly #signatures: Pick<Signatures, 'sign'>
  readonly #waiting: Waiting[] = []
  #isSigning = false

  constructor(components: RequestBatchesComponents) {
    this.#signatures = components.signatures
  }

  /** A signature for `verifyInBatch`. Throws what `recorded` throws, its own or another's of the same batch: a signature covers all of them. */
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
      void answerAll(batch, made)
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
}

/** The signature that one is given is good for all the others, whose path can be told from its own: nobody is given it before all are recorded. */
const answerAll = async (batch: readonly Waiting[], made: Promise<Uint8Array[]>): Promise<void> => {
  try {
    const signatures = await made
    const failed = (await Promise.all(batch.map(async ({ recorded }) => recorded))).find((one) => one !== null)
    if (failed !== undefined) throw failed.error
    batch.forEach(({ answer }, index) => answer.resolve(signatures[index]!))
  } catch (error) {
    for (const { answer } of batch) answer.reject(error)
  }
}
