import { AppError } from './errors.ts'

/** More requests than a program of x0x sends before the first reply. */
const MAX_PENDING = 65_536

/** Requests that wait for the reply with their ID, each with a `Context`. */
export class PendingReplies<Reply, Context = null> {
  readonly #pending = new Map<number, PromiseWithResolvers<Reply> & { readonly context: Context }>()
  #lastId = 0
  #closed: AppError | null = null

  /** Why no more requests are accepted, or null while they are. */
  get closed(): AppError | null {
    return this.#closed
  }

  /** The ID of a new request, and its reply. Throws the reason of `close`, or `rate_limited` if too many requests wait. */
  start(context: Context): { readonly id: number; readonly reply: Promise<Reply> } {
    if (this.#closed !== null) throw this.#closed
    if (this.#pending.size >= MAX_PENDING) throw new AppError('rate_limited', 'too many requests wait for a reply')
    const id = ++this.#lastId
    const pending = Promise.withResolvers<Reply>()
    this.#pending.set(id, { ...pending, context })
    return { id, reply: pending.promise }
  }

  /** Undefined if no request with this ID waits. */
  contextOf(id: number): Context | undefined {
    return this.#pending.get(id)?.context
  }

  /** Returns whether a request with this ID waited, like `reject` and `drop`. */
  resolve(id: number, reply: Reply): boolean {
    this.#pending.get(id)?.resolve(reply)
    return this.drop(id)
  }

  reject(id: number, error: AppError): boolean {
    this.#pending.get(id)?.reject(error)
    return this.drop(id)
  }

  /** Forgets a request whose reply is not wanted any longer. */
  drop(id: number): boolean {
    return this.#pending.delete(id)
  }

  /** Rejects all requests that wait, and those that come later. */
  close(why: AppError): void {
    this.#closed ??= why
    for (const id of this.#pending.keys()) this.reject(id, this.#closed)
  }
}
