/** A signal that is never aborted. */
export const NEVER = new AbortController().signal

/** Settles as `work` does, or throws the signal's reason if that is aborted first. `work` itself is not stopped. */
export const unlessAborted = async <T>(work: Promise<T>, signal: AbortSignal): Promise<T> => {
  // The caller gets the reason at once, so a later rejection of `work` must not count as unhandled.
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

export const aborted = async (signal: AbortSignal): Promise<void> => {
  if (signal.aborted) return
  const { promise, resolve } = Promise.withResolvers<void>()
  signal.addEventListener('abort', () => resolve(), { once: true })
  await promise
}
