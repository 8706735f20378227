/** The last argument of every method. */
export interface CallOptions {
  /** Aborting rejects at once with the signal's reason. What was sent already is not taken back. */
  readonly signal?: AbortSignal | undefined
}

/** Calls back once, also when it is aborted already; answers how to take that back. */
export const whenAborted = (signal: AbortSignal | undefined, callback: (reason: unknown) => void): (() => void) => {
  if (signal === undefined) return () => undefined
  const listener = (): void => callback(signal.reason)
  if (signal.aborted) listener()
  else signal.addEventListener('abort', listener, { once: true })
  return () => signal.removeEventListener('abort', listener)
}

/** Settles as the promise does, or rejects with the signal's reason as soon as it is aborted. */
export const orAborted = async <T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> =>
  new Promise((resolve, reject) => {
    const release = whenAborted(signal, reject)
    promise.then(resolve, reject).finally(release)
  })

/** Waits; ends early, without an error, when the signal is aborted. */
export const pause = async (ms: number, signal?: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(() => {
      release()
      resolve()
    }, ms)
    const release = whenAborted(signal, () => {
      clearTimeout(timer)
      resolve()
    })
  })

/** A promise and what settles it. The client runs on runtimes that have no `Promise.withResolvers`. */
export interface Deferred<T> {
  readonly promise: Promise<T>
  resolve(value: T): void
  reject(error: unknown): void
}

export const deferred = <T>(): Deferred<T> => {
  let settle: Pick<Deferred<T>, 'resolve' | 'reject'> | null = null
  const promise = new Promise<T>((resolve, reject) => {
    settle = { resolve, reject }
  })
  return { promise, ...settle! }
}
