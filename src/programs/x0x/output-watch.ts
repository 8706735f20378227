import { exitOfSignal } from '../../supervision/program-exit.ts'
import type { CliIo } from './context.ts'
import { flush, write } from './print.ts'
import { shownLine } from '../../base/visible-text.ts'

/** A reader that went away (`| head`) is no failure of the command; a shell reports it like this. */
const EXIT_READER_GONE = exitOfSignal('SIGPIPE')
const GONE = new Set(['EPIPE', 'ERR_STREAM_DESTROYED'])

/** Sees to it that no command succeeds whose output was lost: a full disk must not look like an empty answer. */
export class OutputWatch {
  readonly #io: Pick<CliIo, 'stdout' | 'stderr'>
  #failure: NodeJS.ErrnoException | null = null

  /** Listens for as long as the process lives: what was written last may fail last. */
  constructor(io: Pick<CliIo, 'stdout' | 'stderr'>) {
    this.#io = io
    for (const output of [io.stdout, io.stderr]) output.on('error', (error) => (this.#failure ??= error))
  }

  /** The exit status when all is written: `status`, unless its output was lost. */
  async finish(status: number): Promise<number> {
    await flush(this.#io.stdout)
    await flush(this.#io.stderr)
    if (this.#failure === null) return status
    if (GONE.has(this.#failure.code ?? '')) return EXIT_READER_GONE
    await write(this.#io.stderr, `x0x: the output could not be written: ${shownLine(this.#failure.message)}\n`)
    return status === 0 ? 1 : status
  }
}
