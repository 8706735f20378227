/** A signal that nobody aborts. */
export const NEVER = new AbortController().signal

/** Settles as `work` does, or throws the signal's reason if that is aborted first. `work` itself is not stopped. */
export const unlessAborted = async <T>(work: Promise<T>, signal: AbortSignal): Promise<T> => {
  // Nobody waits for it any more, so nobody hears how it fails.
  if (signal.aborted) work.catch(() => undefined)
  signal.throwIfAborted()
  const { promise, reject } = Promise.withResolvers<never>()
  const abort = (): void => reject(signal.reason as Error)
  signal.addEventListener('abort', abort, { once: true })
  try {
    return await Promise.race([work, promise])
  } finally {
    signal.removeEventListener('abort', abort)
  }
}

/** Resolves when the signal is aborted. */
export const aborted = async (signal: AbortSignal): Promise<void> => {
  if (signal.aborted) return
  const { promise, resolve } = Promise.withResolvers<void>()
  signal.addEventListener('abort', () => resolve(), { once: true })
  await promise
}
