import { onStopSignal } from '../../supervision/program-exit.ts'
import { write } from './tell.ts'

/** Prints texts as they come; Ctrl-C, or a reader that is gone, is an ordinary end. */
export const printUntilEnded = async (texts: (signal: AbortSignal) => AsyncIterable<string>): Promise<void> => {
  const ending = new AbortController()
  const end = (): void => ending.abort()
  const stop = onStopSignal(end)
  process.stdout.on('error', end)
  try {
    for await (const text of texts(ending.signal)) {
      await write(text)
      if (ending.signal.aborted) break
    }
  } catch (error) {
    if (!ending.signal.aborted) throw error
  } finally {
    stop()
  }
}
