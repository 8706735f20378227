import type { FastifyReply } from 'fastify'
import type { ServerResponse } from 'node:http'
import { AppError } from '../../base/errors.ts'
import type { RunEvent, RunOutcome, RunSink } from '../../exec/run-spec.ts'
import { RAW_RUN_TYPE, type RunEventJson, type RunResultJson } from '../../protocol/api/run-events.ts'
import { denialText } from '../../protocol/denial-text.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_AGGREGATED_OUTPUT } from '../../protocol/limits/wire.ts'
import type { WarningKind } from '../../protocol/reasons.ts'
import { toBase64 } from '../../protocol/text.ts'
import { errorFields } from './definition.ts'
import type { EventStream, StreamFormat } from './event-stream.ts'

/** Output of one run for one JSON answer, as far as it fits. */
export class RetainedOutput {
  readonly #max: number
  readonly #parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] }
  readonly #cut = new Set<WarningKind>()
  #kept = 0

  /** `max`: bytes of both streams. */
  constructor({ max }: { max: number }) {
    this.#max = max
  }

  event(event: RunEvent): void {
    if (event.type !== 'stdout' && event.type !== 'stderr') return
    const room = this.#max - this.#kept
    const part = event.data.subarray(0, room)
    this.#kept += part.length
    if (part.length > 0) this.#parts[event.type].push(part)
    if (part.length < event.data.length) this.#cut.add(`${event.type}_cap_hit`)
  }

  get base64(): { stdout_b64: string; stderr_b64: string } {
    const [stdout_b64, stderr_b64] = [this.#parts.stdout, this.#parts.stderr].map((parts) => Buffer.concat(parts).toString('base64'))
    return { stdout_b64: stdout_b64!, stderr_b64: stderr_b64! }
  }

  /** What did not fit was counted and dropped: `truncated`, with the warning of the stream's cap. */
  cut({ truncated, warnings }: Pick<RunOutcome, 'truncated' | 'warnings'>): { truncated: boolean; warnings: WarningKind[] } {
    return {
      truncated: truncated || this.#cut.size > 0,
      warnings: [...warnings, ...[...this.#cut].filter((kind) => !warnings.includes(kind))],
    }
  }
}

/** A run in the words of its client. */
export interface NamedRun {
  readonly agent?: string | undefined
  readonly agent_id?: string | undefined
  readonly argv: readonly string[]
}

/** The commands that help after a denial, a line each. */
const nextOfDenial = ({ denial_reason, agent_id }: RunOutcome, named: NamedRun): { next?: string } => {
  if (denial_reason === null) return {}
  const host = named.agent ?? named.agent_id ?? agent_id
  return { next: denialText(denial_reason, { host, argv: named.argv }).next.join('\n') }
}

/** One JSON answer for one run. */
export class AggregatedRun implements RunSink {
  readonly #kept = new RetainedOutput({ max: MAX_AGGREGATED_OUTPUT })

  event(event: RunEvent): void {
    this.#kept.event(event)
  }

  result(outcome: RunOutcome, named: NamedRun): RunResultJson {
    const { truncated: _cut, incomplete, denial_reason, warnings: _told, waited_ms, never_arrived, message, ...rest } = outcome
    const { truncated, warnings } = this.#kept.cut(outcome)
    const { stdout_bytes_total, stderr_bytes_total, ...first } = rest
    return {
      ...first,
      ...this.#kept.base64,
      stdout_bytes_total,
      stderr_bytes_total,
      truncated,
      incomplete,
      denial_reason,
      warnings,
      ...(waited_ms === undefined ? {} : { waited_ms }),
      ...(never_arrived === undefined ? {} : { never_arrived }),
      ...(message === undefined ? {} : { message }),
      ...nextOfDenial(outcome, named),
    }
  }
}

/** As JSON.stringify would begin it: nothing in it needs an escape, and its bytes are most of all that we write. */
export const outputHead = ({ type, request_id, seq }: Extract<RunEvent, { data: Uint8Array }>): string =>
  `{"type":"${type}","request_id":"${request_id}","seq":${seq}`

/** Writes events as they come; a reader that is behind holds the run, not our memory. */
export class StreamedRun implements RunSink {
  readonly #stream: EventStream
  /** Of a streamed body: what is still being sent when all is said. */
  readonly #discardRest: () => Promise<void>
  #requestId: RequestId | null = null

  constructor(components: { stream: EventStream; discardRest: () => Promise<void> }) {
    this.#stream = components.stream
    this.#discardRest = components.discardRest
  }

  event(event: RunEvent): void | Promise<void> {
    this.#requestId = event.request_id
    if (event.type !== 'stdout' && event.type !== 'stderr') return this.#stream.send(event)
    const head = outputHead(event)
    if (this.#stream.format === 'raw') return this.#stream.sendWithBytes(`${head},"data_bytes":${event.data.length}}`, event.data)
    return this.#stream.sendAscii(`${head},"data_b64":"${toBase64(event.data)}"}`)
  }

  async end(outcome: RunOutcome, named: NamedRun): Promise<void> {
    await this.#stream.send({ type: 'exit', ...outcome, ...nextOfDenial(outcome, named) } satisfies RunEventJson)
    await this.#hangUp()
  }

  /** An error after the head went out has no status any more: it is the last line. False = nothing went out yet. */
  fail(error: unknown): boolean {
    if (!this.#stream.begun) return false
    void this.#stream.send({ type: 'error', request_id: this.#requestId, ...errorFields(error) } satisfies RunEventJson)
    void this.#hangUp()
    return true
  }

  async #hangUp(): Promise<void> {
    await this.#discardRest()
    this.#stream.end()
  }
}

/** What the Accept header asks for; null = one JSON object at the end. */
export const streamFormat = (accept: string | undefined): StreamFormat | null => {
  const types = (accept ?? '').split(',').map((part) => part.split(';')[0]!.trim().toLowerCase())
  if (types.includes(RAW_RUN_TYPE)) return 'raw'
  if (types.includes('application/x-ndjson')) return 'ndjson'
  return types.includes('text/event-stream') ? 'sse' : null
}

/** Aborts when the caller's connection goes away before it has its answer. */
export const callerGone = (reply: FastifyReply): AbortSignal => {
  const controller = new AbortController()
  const raw: ServerResponse = reply.raw
  raw.once('close', () => {
    if (!raw.writableFinished) controller.abort(new AppError('conflict', 'the caller closed the request'))
  })
  if (raw.destroyed) controller.abort(new AppError('conflict', 'the caller closed the request'))
  return controller.signal
}
