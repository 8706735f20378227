import {
  count,
  eventReader,
  exitStatus,
  flag,
  id,
  listOf,
  name,
  orMissing,
  orNull,
  signalNumber,
  text,
  type Checked,
} from './field-checks.ts'
import { LINE_FEED, LineSplitter } from './lines.ts'
import type { DenialReason, WaitingReason, WarningKind } from './reasons.ts'

/** A line is an object without output; an error may carry more. */
export const MAX_RUN_LINE = 16 * 1024 * 1024
export const lineTooLong = (): Error => new RangeError(`a line is longer than ${MAX_RUN_LINE} bytes`)

/** The streamed form for programs that read much output: lines of JSON, and bytes as they are. */
export const RAW_RUN_TYPE = 'application/vnd.x0x.run'

export const STARTED = { request_id: id, agent_id: id, machine_id: id, pid: count }
/** Of `RAW_RUN_TYPE`: `data_bytes` bytes of output follow the line feed. */
const OUTPUT = { request_id: id, seq: count, data_bytes: count }
export const WAITING = {
  request_id: id,
  agent_id: id,
  machine_id: id,
  expires_in_ms: count,
  approvals_needed: count,
  approvals_given: count,
  reason: name<WaitingReason>(),
}
export const WARNING = { request_id: id, kind: name<WarningKind>(), message: text }
/** As REST tells an error; `data` is not looked at. */
export type Told = { readonly data?: Readonly<Record<string, unknown>> }
const ERROR = { request_id: orNull(id), error: name(), message: text }

/**
 * How a run ended. `ok` means: the process ran and ended, its signed Exit was verified, and every forwarded byte
 * arrived; the remote exit code may still be non-zero.
 */
const OUTCOME = {
  ok: flag,
  request_id: id,
  agent_id: id,
  machine_id: id,
  code: orNull(exitStatus),
  signal: orNull(signalNumber),
  duration_ms: count,
  stdout_bytes_total: count,
  stderr_bytes_total: count,
  truncated: flag,
  /** The outcome is unknown or bytes are missing: never a success. */
  incomplete: flag,
  denial_reason: orNull(name<DenialReason>()),
  warnings: listOf(name<WarningKind>()),
}
/**
 * `waited_ms`: how long it waited for an approval; absent where it did not. `never_arrived`: the Request certainly did not
 * reach the agent, so nothing ran; absent otherwise. `message`: why it is incomplete, for a human; absent otherwise.
 */
type Outcome = Checked<typeof OUTCOME> & { waited_ms?: number; never_arrived?: true; message?: string }
/** The commands that help after a denial, a line each; absent otherwise. */
type Next = { next?: string }

/** What `POST /exec/run` answers and `x0x exec --json` prints. */
export type RunResultJson = Outcome & Next & { stdout_b64: string; stderr_b64: string }

type RawOutputJson = { type: 'stdout' | 'stderr' } & Checked<typeof OUTPUT>
type WithoutOutput =
  | ({ type: 'started' } & Checked<typeof STARTED>)
  | ({ type: 'waiting_for_approval' } & Checked<typeof WAITING>)
  | ({ type: 'warning' } & Checked<typeof WARNING>)
  | ({ type: 'exit' } & Outcome & Next)
  | ({ type: 'error' } & Checked<typeof ERROR> & Told)

/** One line of the streamed form (NDJSON or SSE data). */
export type RunEventJson = WithoutOutput | ({ type: 'stdout' | 'stderr'; data_b64: string } & Omit<RawOutputJson, 'type' | 'data_bytes'>)

/** Bytes of one output stream, in whatever pieces they came. */
export interface OutputPart {
  readonly type: 'stdout' | 'stderr'
  readonly data: Uint8Array
}

/** What a run's streamed answer holds, in order. */
export type RunPart = OutputPart | WithoutOutput

type Event = RawOutputJson | WithoutOutput

/** Throws SyntaxError for what is no event; what else an event has is not looked at. */
const asEvent = eventReader<Event>('a run', {
  started: STARTED,
  stdout: OUTPUT,
  stderr: OUTPUT,
  waiting_for_approval: WAITING,
  warning: WARNING,
  exit: { ...OUTCOME, waited_ms: orMissing(count), never_arrived: orMissing(flag), message: orMissing(text), next: orMissing(text) },
  error: ERROR,
})

/** Where the bytes are between two chunks: in a line, or in the output that a line announced. */
class RunEventDecoder {
  readonly #lines = new LineSplitter({ max: MAX_RUN_LINE })
  #output: { readonly type: OutputPart['type']; left: number } | null = null

  #part(output: { readonly type: OutputPart['type']; left: number }, data: Uint8Array): OutputPart {
    output.left -= data.length
    if (output.left === 0) this.#output = null
    return { type: output.type, data }
  }

  /** Throws SyntaxError for a line that is no event, RangeError for one without end. */
  *push(chunk: Uint8Array): Generator<RunPart, void, undefined> {
    for (let rest = chunk; rest.length > 0;) {
      if (this.#output !== null) {
        const data = rest.subarray(0, this.#output.left)
        rest = rest.subarray(data.length)
        yield this.#part(this.#output, data)
        continue
      }
      const end = rest.indexOf(LINE_FEED)
      const [line] = this.#lines.pushStrictly(end === -1 ? rest : rest.subarray(0, end + 1), lineTooLong)
      if (line === undefined) return
      rest = rest.subarray(end + 1)
      const event = asEvent(JSON.parse(line.toString('utf8')))
      if (isOutput(event)) this.#announced(event)
      else yield event
    }
  }

  #announced({ type, data_bytes }: RawOutputJson): void {
    if (data_bytes > 0) this.#output = { type, left: data_bytes }
  }
}

const isOutput = (event: Event): event is RawOutputJson => event.type === 'stdout' || event.type === 'stderr'

/** The events of a streamed answer of type `RAW_RUN_TYPE`, however its chunks are cut. Stops reading while its consumer works. */
export async function* runEventsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<RunPart, void, undefined> {
  const decoder = new RunEventDecoder()
  for await (const chunk of chunks) yield* decoder.push(chunk)
}
