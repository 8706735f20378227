import { PassThrough } from 'node:stream'
import { RAW_RUN_TYPE, type TerminalPart, terminalEventsOf } from '../protocol/api/run-events.ts'
import type { WireTerminalSize } from '../protocol/wire/terminal.ts'
import type { LocalApi } from './daemon.ts'
import type { RunProver } from './operator.ts'

/** Bytes of lines that wait for the daemon before keys are no longer read. */
const HIGH_WATER_MARK = 64 * 1024
/** A multiple of three, so that base64 has padding at the end only. */
const CHUNK = 45 * 1024
/** End of file is a character on a terminal. After an incomplete line, the first one only delivers the line. */
const END_OF_FILE = '\u0004'
const LINE_FEED = 0x0a

/** A command on a terminal of another agent. */
export interface TerminalRequest {
  readonly agent: string
  readonly argv: readonly string[]
  readonly request_id: string
  readonly session?: string
  readonly timeout_ms?: number
  readonly terminal: WireTerminalSize & { readonly term: string }
}

/** The body of `POST /exec/terminal`: the request, then a line for each input. It ends with the command. */
export class TerminalBody extends PassThrough {
  /** The first line, which an operator proof covers. */
  readonly head: string
  #lastTyped = LINE_FEED
  /** The size to send when the daemon has taken the waiting lines. */
  #size: WireTerminalSize | null = null

  constructor(request: TerminalRequest) {
    super({ highWaterMark: HIGH_WATER_MARK })
    this.head = JSON.stringify({ ...request, clamp: true })
    this.write(`${this.head}\n`)
  }

  /** False means to type no more before `drained`. */
  type(bytes: Uint8Array): boolean {
    let goesOn = true
    for (let at = 0; at < bytes.length; at += CHUNK)
      goesOn = this.#line({ data: Buffer.from(bytes.subarray(at, at + CHUNK)).toString('base64') })
    this.#lastTyped = bytes.at(-1) ?? this.#lastTyped
    return goesOn
  }

  /** Resolves when more may be typed, or when the run is over. */
  async drained(): Promise<void> {
    if (this.destroyed || !this.writableNeedDrain) return
    await new Promise<void>((resolve) => {
      const done = (): void => {
        this.off('drain', done).off('close', done)
        resolve()
      }
      this.on('drain', done).on('close', done)
    })
  }

  /** While earlier lines wait, only the last size is kept, so that many changes cost no memory. */
  resize({ columns, rows }: WireTerminalSize): void {
    if (!this.writableNeedDrain) return void this.#line({ columns, rows })
    if (this.#size === null) this.once('drain', () => this.#sendSize())
    this.#size = { columns, rows }
  }

  /** Types the end of file after standard input that is not a terminal. The body stays open, because its end cancels the run. */
  endOfFile(): void {
    this.type(Buffer.from(this.#lastTyped === LINE_FEED ? END_OF_FILE : END_OF_FILE.repeat(2)))
  }

  #sendSize(): void {
    const size = this.#size
    this.#size = null
    if (size !== null) this.#line(size)
  }

  #line(input: object): boolean {
    return this.destroyed || this.write(`${JSON.stringify(input)}\n`)
  }
}

export interface TerminalCallInit {
  /** Null without an operator proof. */
  readonly prover: RunProver | null
  readonly headers?: Readonly<Record<string, string>>
  readonly signal: AbortSignal
}

/** Asks the daemon to run the command of the body. Aborting the signal cancels the run. Throws as `LocalApi.open` does. */
export const openTerminal = async (
  { api }: { readonly api: LocalApi },
  body: TerminalBody,
  { prover, headers, signal }: TerminalCallInit,
): Promise<AsyncIterable<TerminalPart>> => {
  const given = { accept: RAW_RUN_TYPE, 'content-type': 'application/x-ndjson', ...prover?.(body.head), ...headers }
  return terminalEventsOf(await api.open({ method: 'POST', path: '/exec/terminal', stream: body, headers: given, signal }))
}
