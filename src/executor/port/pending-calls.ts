import { AppError } from '../../base/errors.ts'
import { portError } from './port-error.ts'

/** An answer, or the word that there is none but an error. */
interface AnswerLike {
  readonly type: string
  readonly id: number
}

interface Pending {
  readonly expected: string
  resolve(answer: AnswerLike): void
  reject(error: AppError): void
}

/** Calls over the port that wait for their answers. */
export class PendingCalls {
  readonly #pending = new Map<number, Pending>()
  #lastId = 0

  /** A number for a call, and its answer, which is of this type; rejects with the other side's own error. */
  begin(expected: string): { readonly id: number; readonly answer: Promise<AnswerLike> } {
    const id = ++this.#lastId
    const { promise, resolve, reject } = Promise.withResolvers<AnswerLike>()
    this.#pending.set(id, { expected, resolve, reject })
    return { id, answer: promise }
  }

  /** False: no call of ours. */
  settle(message: AnswerLike): boolean {
    const pending = this.#pending.get(message.id)
    if (pending === undefined) return false
    this.#pending.delete(message.id)
    if (message.type === 'failed') pending.reject(portError(message as unknown as Parameters<typeof portError>[0]))
    else if (message.type === pending.expected) pending.resolve(message)
    else pending.reject(new AppError('internal', `the executor answered ${message.type} instead of ${pending.expected}`))
    return true
  }

  /** Nobody answers any more. */
  fail(cause: Error | null): void {
    for (const pending of this.#pending.values()) pending.reject(new AppError('shutting_down', 'the executor is gone', { cause }))
    this.#pending.clear()
  }
}
