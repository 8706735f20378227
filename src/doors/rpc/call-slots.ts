import { AppError } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { Condition } from '../../base/wait-queue.ts'
import { MAX_RPC_PENDING } from '../../protocol/limits/rexd.ts'
import { jsonText } from '../../protocol/lines.ts'
import { type RpcResponse, failure } from './message.ts'

/** Characters of the answers to all batches of one connection that are not answered yet: two of the longest, a file of nothing but control characters. */
export const MAX_RPC_BATCH_ANSWER = 32 * 1024 * 1024
/** An answer in a batch that is never refused where nothing in it waits, so that who starts something learns its id: a path, and the fields around it. */
const SMALL_BATCH_ANSWER = 8 * 1024
/** Characters of the answers to one batch that waits: they are held for as long as a program runs, by as many as may wait. */
export const MAX_RPC_WAITING_BATCH_ANSWER = 64 * 1024

/** How many characters the batches of one connection hold that are not answered yet. */
export interface BatchSlots {
  taken: number
}

/** The answers of one batch, each written as soon as it is made: what does not fit is refused in its place, and kept by nobody. */
export class BatchAnswers {
  readonly #room: BatchSlots
  /** It waits for a program or an event, and may hold what it has for as long. */
  readonly #waits: boolean
  readonly #texts: string[] = []
  #size = 0
  #taken = 0

  constructor(components: { room: BatchSlots }, init: { waits: boolean }) {
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

/** Questions of one connection that wait for a program or an event. */
export const MAX_RPC_WAITS = 1_024

/** A call's place among those in work. */
export interface CallSlot {
  /** Leaves the place while it waits, and takes one again. Throws `resource_limit` where too many wait, and the signal's reason when nobody asks any more. */
  outside<T>(wait: () => Promise<T>): Promise<T>
  /** May be called more than once. */
  leave(): void
}

/** The calls of one connection, or of all that ask by POST: so many are in work at once, and so many wait for programs and events. */
export class CallSlots {
  /** Characters of the answers to batches that are not said yet. */
  readonly batches: BatchSlots = { taken: 0 }
  readonly #turnstile = new Semaphore({ limit: MAX_RPC_PENDING })
  /** Calls that have a place, or want one. */
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

  /** Nobody would have to wait for a place. */
  get free(): boolean {
    return this.#turnstile.free
  }

  /** Resolves when a place is free. */
  async room(): Promise<void> {
    while (!this.free) await this.#changed.wait()
  }

  /** Resolves when everything that was asked is answered, but for what waits outside. */
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
      const leave = await this.#turnstile.acquire(signal)
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
  new AppError('resource_limit', `${MAX_RPC_WAITS} questions wait for programs and events, which is all that may`, {
    data: { limit: 'waits', max: MAX_RPC_WAITS },
  })
