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
  /** Calls back when this process is asked to stop, until the answer is called. */
  onSignal(listener: () => void): () => void
}

/** Writes and waits until the stream takes more; the answer is false when its reader is gone. */
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

/** Waits until what was written is written, or cannot be. */
const flush = async (output: Output): Promise<void> => {
  if (output.writableLength > 0 && !output.destroyed) await new Promise<void>((resolve) => output.write('', () => resolve()))
}

/** Does what goes on until its signal is aborted: by a signal to this process, or when nobody reads standard output any more. */
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

/** A reader that went away (`| head`) is no failure of the command; a shell reports it like this. */
const EXIT_READER_GONE = exitOfSignal('SIGPIPE')
const GONE = new Set(['EPIPE', 'ERR_STREAM_DESTROYED'])

/** Nobody reads it any more. What else goes wrong, as on a full disk, somebody may want to know. */
export const isGone = ({ code }: NodeJS.ErrnoException): boolean => GONE.has(code ?? '')

/** Sees to it that no command succeeds whose output was lost: a full disk must not look like an empty answer. */
export class OutputWatch {
  readonly #program: string
  readonly #io: Outputs
  readonly #failed = new Set<Output>()
  #failure: NodeJS.ErrnoException | null = null

  /** Listens for as long as the process lives: what was written last may fail last. */
  constructor(program: string, io: Outputs) {
    this.#program = program
    this.#io = io
    for (const output of [io.stdout, io.stderr])
      output.on('error', (error) => {
        this.#failed.add(output)
        this.#failure ??= error
      })
  }

  /** The exit status when all is written: `status`, unless its output was lost. */
  async finish(status: number): Promise<number> {
    await flush(this.#io.stdout)
    await flush(this.#io.stderr)
    if (this.#failure === null) return status
    if (isGone(this.#failure)) return EXIT_READER_GONE
    const { stderr } = this.#io
    // One that has failed need not say so again, and whoever waits for it waits for ever.
    if (!this.#failed.has(stderr))
      await write(stderr, `${this.#program}: the output could not be written: ${shownLine(this.#failure.message)}\n`)
    return status === 0 ? 1 : status
  }
}
