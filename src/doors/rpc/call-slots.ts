import { AppError } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { Condition } from '../../base/wait-queue.ts'
import { MAX_RPC_PENDING } from '../../protocol/limits/rexd.ts'
import { jsonText } from '../../protocol/lines.ts'
import { type RpcResponse, failure } from './message.ts'

/** Maximum characters of the unanswered batches of one connection: two of the longest answers, each a file of control characters. */
export const MAX_RPC_BATCH_ANSWER = 32 * 1024 * 1024
/** An answer of this size in a batch is never refused unless the batch waits, so that a client learns the ID of what it started. */
const SMALL_BATCH_ANSWER = 8 * 1024
/** Maximum characters of the answers to a batch that waits: they are retained while a program runs. */
export const MAX_RPC_WAITING_BATCH_ANSWER = 64 * 1024

/** Characters that the unanswered batches of one connection retain. */
export interface BatchSlots {
  taken: number
}

/** The answers of one batch, serialized as they arrive. An answer that does not fit is replaced by an error. */
export class BatchAnswers {
  readonly #room: BatchSlots
  /** Whether a call of the batch waits for a program or an event. */
  readonly #waits: boolean
  readonly #texts: string[] = []
  #size = 0
  #taken = 0

  constructor(deps: { room: BatchSlots }, init: { waits: boolean }) {
    this.#room = deps.room
    this.#waits = init.waits
  }

  /** `at`: position of the call in the batch. False if the answer did not fit and was replaced. */
  add(at: number, response: RpcResponse): boolean {
    const text = jsonText(response)
    const fits = this.#fits(text.length)
    const kept = fits ? text : jsonText(failure(response.id, this.#tooMuch()))
    this.#size += kept.length
    this.#texts[at] = kept
    return fits
  }

  /** Null if no call of the batch gets an answer. */
  get text(): string | null {
    const texts = this.#texts.filter((text) => text !== undefined)
    return texts.length === 0 ? null : `[${texts.join(',')}]`
  }

  /** Releases the budget when the batch was answered or its client is gone. */
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
    const whose = this.#waits ? 'a waiting batch' : 'batches'
    return new AppError('resource_limit', `the answers of ${whose} have at most ${max} characters together; send this request separately`, {
      data: { limit: 'batch_answer', max },
    })
  }
}

/** Maximum number of calls of one connection that wait for a program or an event. */
export const MAX_RPC_WAITS = 1_024

export interface CallSlot {
  /** Releases the slot while the call waits, and acquires one again. Throws `resource_limit` if too many calls wait, and the signal's reason. */
  outside<T>(wait: () => Promise<T>): Promise<T>
  /** Can be called more than once. */
  leave(): void
}

/** Bounds the concurrent calls, and the waiting calls, of one connection or of all clients that use POST. */
export class CallSlots {
  readonly batches: BatchSlots = { taken: 0 }
  readonly #slots = new Semaphore({ limit: MAX_RPC_PENDING })
  /** Calls that have a slot or wait for one. */
  #asked = 0
  #outside = 0
  readonly #changed = new Condition()

  /** Throws the signal's reason. */
  async enter(signal: AbortSignal): Promise<CallSlot> {
    let leave = await this.#enter(signal)
    return {
      leave: () => leave(),
      outside: async (wait) => {
        if (this.#outside >= MAX_RPC_WAITS) throw tooManyWait()
        leave()
        this.#outside += 1
        try {
          return await wait()
        } finally {
          this.#outside -= 1
          leave = await this.#enter(signal)
        }
      },
    }
  }

  get free(): boolean {
    return this.#slots.free
  }

  /** Resolves when a slot is free. */
  async room(): Promise<void> {
    while (!this.free) await this.#changed.wait()
  }

  /** Resolves when all calls are answered, except those that wait outside. */
  async idle(): Promise<void> {
    while (this.#asked > 0) await this.#changed.wait()
  }

  async #enter(signal: AbortSignal): Promise<() => void> {
    this.#asked += 1
    const done = (): void => {
      this.#asked -= 1
      this.#changed.notifyAll()
    }
    try {
      const leave = await this.#slots.acquire(signal)
      let inside = true
      return () => {
        if (!inside) return
        inside = false
        leave()
        done()
      }
    } catch (error) {
      done()
      throw error
    }
  }
}

const tooManyWait = (): AppError =>
  new AppError('resource_limit', `${MAX_RPC_WAITS} calls are already waiting for processes and events, which is the limit`, {
    data: { limit: 'waits', max: MAX_RPC_WAITS },
  })
