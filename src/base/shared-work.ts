import { unlessAborted } from './abortable.ts'
import { AppError } from './errors.ts'

interface Attempt<T> {
  readonly result: Promise<T>
  readonly unwanted: AbortController
  callers: number
}

/** Work that several callers wait for, done once for each key, and given up when nobody waits for it any more. */
export class SharedWork<T> {
  readonly #underway = new Map<string, Attempt<T>>()

  /** What the work under this key comes to; begins it where it is not under way. Throws what it throws, or the signal's reason. */
  async join(key: string, begin: (wanted: AbortSignal) => Promise<T>, signal: AbortSignal): Promise<T> {
    signal.throwIfAborted()
    const attempt = this.#underway.get(key) ?? this.#begin(key, begin)
    attempt.callers += 1
    try {
      return await unlessAborted(attempt.result, signal)
    } finally {
      attempt.callers -= 1
      if (attempt.callers === 0) {
        this.#forget(key, attempt)
        attempt.unwanted.abort(new AppError('conflict', 'nobody waits for it any more'))
      }
    }
  }

  #begin(key: string, begin: (wanted: AbortSignal) => Promise<T>): Attempt<T> {
    const unwanted = new AbortController()
    const attempt: Attempt<T> = { result: begin(unwanted.signal), unwanted, callers: 0 }
    this.#underway.set(key, attempt)
    const over = (): void => this.#forget(key, attempt)
    attempt.result.then(over, over)
    return attempt
  }

  #forget(key: string, attempt: Attempt<T>): void {
    if (this.#underway.get(key) === attempt) this.#underway.delete(key)
  }
}
