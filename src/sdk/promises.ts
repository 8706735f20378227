/** The last argument of every method. */
export interface CallOptions {
  /** Rejects at once with its reason when aborted. A sent request is not withdrawn. */
  readonly signal?: AbortSignal | undefined
}

/** Calls back once, also if already aborted. Returns the function that cancels this. */
export const whenAborted = (signal: AbortSignal | undefined, callback: (reason: unknown) => void): (() => void) => {
  if (signal === undefined) return () => undefined
  const listener = (): void => callback(signal.reason)
  if (signal.aborted) listener()
  else signal.addEventListener('abort', listener, { once: true })
  return () => signal.removeEventListener('abort', listener)
}

/** Settles as the promise does, or rejects with the signal's reason when aborted. */
export const orAborted = async <T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> =>
  new Promise((resolve, reject) => {
    const release = whenAborted(signal, reject)
    promise.then(resolve, reject).finally(release)
  })

/** Waits. An abort ends it early without an error. */
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

/** A promise with its settlers, for runtimes without `Promise.withResolvers`. */
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
