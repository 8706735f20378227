import { base64, denialReason, exitStatus, hexId, requestId, signalNumber, warningKind } from '../api-fields.ts'
import {
  type EventOf,
  type FieldTable,
  type Sent,
  count,
  eventReader,
  flag,
  list,
  nameOf,
  optional,
  orNull,
  table,
  text,
  yes,
} from '../json-table.ts'
import { LINE_FEED, LineSplitter } from '../lines.ts'
import { WAITING_REASONS } from '../reasons.ts'

/** Lines are objects without output, but an error may contain more. */
export const MAX_RUN_LINE = 16 * 1024 * 1024
export const lineTooLong = (): Error => new RangeError(`a line is longer than ${MAX_RUN_LINE} bytes`)

/** Streamed form for programs that read much output, with lines of JSON and raw bytes. */
export const RAW_RUN_TYPE = 'application/vnd.x0x.run'

/** Fields of all events of one run in REST. */
const RUN = { request_id: requestId, agent_id: hexId, machine_id: hexId }
export const STARTED = { ...RUN, pid: count }
export const WAITING = {
  ...RUN,
  expires_in_ms: count.says('time from now until the run is denied if no approver decides'),
  approvals_needed: count.says('number of approving agents needed; 0 if the approver of the target decides alone'),
  approvals_given: count,
  reason: nameOf(WAITING_REASONS),
}
export const WARNING = { request_id: requestId, kind: warningKind, message: text }
/** In `RAW_RUN_TYPE`, `data_bytes` bytes of output follow the line feed. */
const RAW_OUTPUT = { request_id: requestId, seq: count, data_bytes: count }
const OUTPUT = { request_id: requestId, seq: count, data_b64: base64 }

/** An error, as a response or the last line of a stream. The keys of `data` depend on the error code. */
export const ERROR_TOLD = { error: nameOf(), message: text, data: optional(table) }
const ERROR = { request_id: orNull(requestId), ...ERROR_TOLD }

/** How a run ended. The remote exit code may be non-zero even with `ok`. */
export const RUN_OUTCOME = {
  ok: flag.says('the run ended, its signed Exit was verified and every forwarded byte arrived; false for a denial'),
  ...RUN,
  code: orNull(exitStatus),
  signal: orNull(signalNumber),
  duration_ms: count,
  stdout_bytes_total: count,
  stderr_bytes_total: count,
  truncated: flag,
  /** The result is unknown or bytes are missing. Never a success. */
  incomplete: flag,
  denial_reason: orNull(denialReason),
  warnings: list(warningKind),
  waited_ms: optional(count).says('time spent waiting for an approval; absent if none was needed'),
  never_arrived: optional(yes).says('the request did not reach the agent, so nothing ran; absent otherwise'),
  message: optional(text).says('why the result is incomplete'),
}
const NEXT = { next: optional(text).says('after a denial: commands that help, one per line') }

/** Response of `POST /exec/run`, which `x0x exec --json` prints. */
export const RUN_RESULT = { ...RUN_OUTCOME, stdout_b64: base64, stderr_b64: base64, ...NEXT }
export type RunResultJson = Sent<typeof RUN_RESULT>

const runEvents = <O extends FieldTable>(output: O) => ({
  started: STARTED,
  waiting_for_approval: WAITING,
  stdout: output,
  stderr: output,
  warning: WARNING,
  exit: { ...RUN_OUTCOME, ...NEXT },
  error: ERROR,
})
/** Lines of the streamed form (NDJSON or SSE data). */
export const RUN_EVENTS = runEvents(OUTPUT)
/** Lines of `RAW_RUN_TYPE`. */
export const RAW_RUN_EVENTS = runEvents(RAW_OUTPUT)
export type RunEventJson = EventOf<typeof RUN_EVENTS>
type RawRunEvent = EventOf<typeof RAW_RUN_EVENTS>

/** The connection to the target was lost, or is there again. The run continues. */
const CONNECTION = { request_id: requestId }
const CONNECTION_EVENTS = { disconnected: CONNECTION, resumed: CONNECTION }
/** Lines of a run on a terminal. All output is stdout. */
export const TERMINAL_EVENTS = { ...RUN_EVENTS, ...CONNECTION_EVENTS }
export const RAW_TERMINAL_EVENTS = { ...RAW_RUN_EVENTS, ...CONNECTION_EVENTS }
export type TerminalEventJson = EventOf<typeof TERMINAL_EVENTS>
type RawTerminalEvent = EventOf<typeof RAW_TERMINAL_EVENTS>
type RawOutput = Extract<RawRunEvent, { type: 'stdout' | 'stderr' }>

export interface OutputPart {
  readonly type: 'stdout' | 'stderr'
  readonly data: Uint8Array
}

/** Parts of a run's streamed response, in order. */
export type RunPart = OutputPart | Exclude<RawRunEvent, RawOutput>
/** Parts of the streamed response of a run on a terminal. */
export type TerminalPart = OutputPart | Exclude<RawTerminalEvent, RawOutput>

type RunLine = Exclude<RawRunEvent, RawOutput>
type TerminalLine = Exclude<RawTerminalEvent, RawOutput>

/** Throws SyntaxError for a line that does not have an event. Does not check further fields of an event. */
type ReadEvent<E> = (value: unknown) => E | RawOutput
const runEvent: ReadEvent<RunLine> = eventReader('a run', RAW_RUN_EVENTS)
const terminalEvent: ReadEvent<TerminalLine> = eventReader('a run on a terminal', RAW_TERMINAL_EVENTS)

/** Parses a response in chunks. Between chunks it is inside a line or inside announced output. */
class RunEventDecoder<E extends { readonly type: string }> {
  readonly #asEvent: ReadEvent<E>
  readonly #lines = new LineSplitter({ max: MAX_RUN_LINE })
  #output: { readonly type: OutputPart['type']; left: number } | null = null

  constructor(asEvent: ReadEvent<E>) {
    this.#asEvent = asEvent
  }

  #part(output: { readonly type: OutputPart['type']; left: number }, data: Uint8Array): OutputPart {
    output.left -= data.length
    if (output.left === 0) this.#output = null
    return { type: output.type, data }
  }

  /** Throws SyntaxError for a line that does not have an event, RangeError for an over-long line. */
  *push(chunk: Uint8Array): Generator<OutputPart | E, void, undefined> {
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
      const event = this.#asEvent(JSON.parse(line.toString('utf8')))
      if (isOutput(event)) this.#announced(event)
      else yield event
    }
  }

  #announced({ type, data_bytes }: RawOutput): void {
    if (data_bytes > 0) this.#output = { type, left: data_bytes }
  }
}

const isOutput = (event: { readonly type: string }): event is RawOutput => event.type === 'stdout' || event.type === 'stderr'

/** The events of a streamed response of type `RAW_RUN_TYPE`. Stops reading while its consumer works. */
export async function* runEventsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<RunPart, void, undefined> {
  const decoder = new RunEventDecoder(runEvent)
  for await (const chunk of chunks) yield* decoder.push(chunk)
}

/** The same for a run on a terminal. */
export async function* terminalEventsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<TerminalPart, void, undefined> {
  const decoder = new RunEventDecoder(terminalEvent)
  for await (const chunk of chunks) yield* decoder.push(chunk)
}
