import { AppError } from '../../base/errors.ts'
import { MAX_RPC_BATCH_ANSWER, MAX_RPC_WAITING_BATCH_ANSWER, SMALL_BATCH_ANSWER } from '../../protocol/rexd-limits.ts'
import { failure, type RpcResponse } from './message.ts'

/** How many characters the batches of one connection hold that are not answered yet. */
export interface BatchRoom {
  taken: number
}

/** The answers of one batch, each written as soon as it is made: what does not fit is refused in its place, and kept by nobody. */
export class BatchAnswers {
  readonly #room: BatchRoom
  /** It waits for a program or an event, and may hold what it has for as long. */
  readonly #waits: boolean
  readonly #texts: string[] = []
  #size = 0
  #taken = 0

  constructor(components: { room: BatchRoom }, init: { waits: boolean }) {
    this.#room = components.room
    this.#waits = init.waits
  }

  /** `at`: of its question in the batch. False: it did not fit, and its place says so. */
  add(at: number, response: RpcResponse): boolean {
    const text = JSON.stringify(response)
    const isTold = this.#fits(text.length)
    const told = isTold ? text : JSON.stringify(failure(response.id, this.#tooMuch()))
    this.#size += told.length
    this.#texts[at] = told
    return isTold
  }

  /** Null: nobody is answered. */
  get text(): string | null {
    const texts = this.#texts.filter((text) => text !== undefined)
    return texts.length === 0 ? null : `[${texts.join(',')}]`
  }

  /** It is answered, or nobody waits for that any more. */
  release(): void {
    this.#room.taken -= this.#taken
    this.#taken = 0
  }

  #fits(size: number): boolean {
    if (this.#waits) return this.#size + size <= MAX_RPC_WAITING_BATCH_ANSWER
    if (size <= SMALL_BATCH_ANSWER) return true
    if (this.#room.taken + size > MAX_RPC_BATCH_ANSWER) return false
    this.#room.taken += size
    this.#taken += size
    return true
  }

  #tooMuch(): AppError {
    const max = this.#waits ? MAX_RPC_WAITING_BATCH_ANSWER : MAX_RPC_BATCH_ANSWER
    const whose = this.#waits ? 'a batch that waits' : 'batches'
    return new AppError('resource_limit', `the answers of ${whose} have at most ${max} characters together; ask for this one alone`, {
      data: { limit: 'batch_answer', max },
    })
  }
}
