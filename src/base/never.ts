/** A signal that nobody aborts. */
export const NEVER = new AbortController().signal
