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
  expires_in_ms: count.says('from now on; then it is denied where nobody has decided'),
  approvals_needed: count.says('of other agents; 0: a human over there alone'),
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
  waited_ms: optional(count).says('how long it waited for an approval; absent where it did not'),
  never_arrived: optional(yes).says('the Request certainly did not reach the agent: nothing ran; absent otherwise'),
  message: optional(text).says('why it is incomplete'),
}
const NEXT = { next: optional(text).says('after a denial: the commands that help, a line each') }

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
type RawOutput = Extract<RawRunEvent, { type: 'stdout' | 'stderr' }>

export interface OutputPart {
  readonly type: 'stdout' | 'stderr'
  readonly data: Uint8Array
}

/** Parts of a run's streamed response, in order. */
export type RunPart = OutputPart | Exclude<RawRunEvent, RawOutput>

/** Throws SyntaxError for a line that does not have an event. Does not check further fields of an event. */
const asEvent = eventReader('a run', RAW_RUN_EVENTS)

/** Parses a response in chunks. Between chunks it is inside a line or inside announced output. */
class RunEventDecoder {
  readonly #lines = new LineSplitter({ max: MAX_RUN_LINE })
  #output: { readonly type: OutputPart['type']; left: number } | null = null

  #part(output: { readonly type: OutputPart['type']; left: number }, data: Uint8Array): OutputPart {
    output.left -= data.length
    if (output.left === 0) this.#output = null
    return { type: output.type, data }
  }

  /** Throws SyntaxError for a line that does not have an event, RangeError for an over-long line. */
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

  #announced({ type, data_bytes }: RawOutput): void {
    if (data_bytes > 0) this.#output = { type, left: data_bytes }
  }
}

const isOutput = (event: RawRunEvent): event is RawOutput => event.type === 'stdout' || event.type === 'stderr'

/** The events of a streamed response of type `RAW_RUN_TYPE`. Stops reading while its consumer works. */
export async function* runEventsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<RunPart, void, undefined> {
  const decoder = new RunEventDecoder()
  for await (const chunk of chunks) yield* decoder.push(chunk)
}
