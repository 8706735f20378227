import type { Writable } from 'node:stream'
import { shownLine } from '../base/visible-text.ts'
import { exitOfSignal } from './exit.ts'

/** A stream that may be a terminal. */
export type Output = Writable & { readonly isTTY?: boolean; readonly columns?: number }

interface Outputs {
  readonly stdout: Output
  readonly stderr: Output
}

interface UntilEnded {
  readonly stdout: Output
  /** Calls `listener` when a signal asks this process to stop, until the returned function is called. */
  onSignal(listener: () => void): () => void
}

/** Writes and waits until the stream accepts more. False if its reader is gone. */
export const write = async (output: Output, data: string | Uint8Array): Promise<boolean> => {
  if (output.destroyed || output.writableEnded) return false
  if (output.write(data)) return true
  return new Promise((resolve) => {
    const settle = (alive: boolean) => (): void => {
      output.off('drain', drained)
      output.off('close', gone)
      output.off('error', gone)
      resolve(alive)
    }
    const drained = settle(true)
    const gone = settle(false)
    output.on('drain', drained)
    output.on('close', gone)
    output.on('error', gone)
  })
}

const flush = async (output: Output): Promise<void> => {
  if (output.writableLength > 0 && !output.destroyed) await new Promise<void>((resolve) => output.write('', () => resolve()))
}

/** Runs `work` until a signal stops this process or standard output loses its reader, which aborts the signal of `work`. */
export const untilEnded = async (io: UntilEnded, work: (signal: AbortSignal) => Promise<void>): Promise<number> => {
  const ending = new AbortController()
  const end = (): void => ending.abort()
  const stop = io.onSignal(end)
  io.stdout.on('error', end)
  try {
    await work(ending.signal)
  } catch (error) {
    if (!ending.signal.aborted) throw error
  } finally {
    stop()
    end()
    io.stdout.off('error', end)
  }
  return 0
}

/** A lost reader (`| head`) is not a failure of the command; a shell reports it like this. */
const EXIT_READER_GONE = exitOfSignal('SIGPIPE')
const GONE = new Set(['EPIPE', 'ERR_STREAM_DESTROYED'])

/** Whether the error means that the reader is gone. Other errors, such as a full disk, are reported. */
export const isGone = ({ code }: NodeJS.ErrnoException): boolean => GONE.has(code ?? '')

/** Makes a command fail if its output was lost: a full disk must not look like an empty answer. */
export class OutputWatch {
  readonly #program: string
  readonly #io: Outputs
  readonly #failed = new Set<Output>()
  #failure: NodeJS.ErrnoException | null = null

  /** Listens for the life of the process, because the last write may fail last. */
  constructor(program: string, io: Outputs) {
    this.#program = program
    this.#io = io
    for (const output of [io.stdout, io.stderr])
      output.on('error', (error) => {
        this.#failed.add(output)
        this.#failure ??= error
      })
  }

  /** Waits until all is written. Returns `status`, or a failure if output was lost. */
  async finish(status: number): Promise<number> {
    await flush(this.#io.stdout)
    await flush(this.#io.stderr)
    if (this.#failure === null) return status
    if (isGone(this.#failure)) return EXIT_READER_GONE
    const { stderr } = this.#io
    // A stream that failed does not fail again, so waiting for it would never end.
    if (!this.#failed.has(stderr)) await write(stderr, `${this.#program}: cannot write the output: ${shownLine(this.#failure.message)}\n`)
    return status === 0 ? 1 : status
  }
}
