import { AppError } from '../../base/errors.ts'
import { jsonText } from '../../protocol/lines.ts'
import { type RpcResponse, failure } from './message.ts'

/** Characters of the answers to all batches of one connection that are not answered yet: two of the longest, a file of nothing but control characters. */
export const MAX_RPC_BATCH_ANSWER = 32 * 1024 * 1024
/** An answer in a batch that is never refused where nothing in it waits, so that who starts something learns its id: a path, and the fields around it. */
const SMALL_BATCH_ANSWER = 8 * 1024
/** Characters of the answers to one batch that waits: they are held for as long as a program runs, by as many as may wait. */
export const MAX_RPC_WAITING_BATCH_ANSWER = 64 * 1024

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
    const text = jsonText(response)
    const fits = this.#fits(text.length)
    const kept = fits ? text : jsonText(failure(response.id, this.#tooMuch()))
    this.#size += kept.length
    this.#texts[at] = kept
    return fits
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
