import type { FastifyReply } from 'fastify'
import type { ServerResponse } from 'node:http'
import { AppError } from '../../base/errors.ts'
import type { RunEvent, RunOutcome, RunSink } from '../../exec/run-spec.ts'
import { RAW_RUN_TYPE, type RunEventJson, type RunResultJson } from '../../protocol/api/run-events.ts'
import { denialText } from '../../protocol/denial-text.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_AGGREGATED_OUTPUT } from '../../protocol/limits/wire.ts'
import type { OutputName, WarningKind } from '../../protocol/reasons.ts'
import { toBase64 } from '../../protocol/text.ts'
import { errorFields } from './definition.ts'
import type { EventStream, StreamFormat } from './event-stream.ts'

/** Collects the output of one run for a JSON answer, up to a limit. */
export class RetainedOutput {
  readonly #max: number
  readonly #parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] }
  readonly #cut = new Set<WarningKind>()
  #kept = 0

  /** `max`: limit for both streams together, in bytes. */
  constructor({ max }: { max: number }) {
    this.#max = max
  }

  event(event: RunEvent): void {
    if (event.type === 'stdout' || event.type === 'stderr') this.push(event.type, event.data)
  }

  /** Returns how many of the bytes fit. */
  push(stream: OutputName, data: Uint8Array): number {
    const part = data.subarray(0, this.#max - this.#kept)
    this.#kept += part.length
    if (part.length > 0) this.#parts[stream].push(part)
    if (part.length < data.length) this.#cut.add(`${stream}_cap_hit`)
    return part.length
  }

  get isFull(): boolean {
    return this.#kept >= this.#max
  }

  get base64(): { stdout_b64: string; stderr_b64: string } {
    const { stdout, stderr } = this.#parts
    return { stdout_b64: toBase64(Buffer.concat(stdout)), stderr_b64: toBase64(Buffer.concat(stderr)) }
  }

  /** Marks output that did not fit: `truncated`, and the warning of the stream's limit. */
  cut({ truncated, warnings }: Pick<RunOutcome, 'truncated' | 'warnings'>): { truncated: boolean; warnings: WarningKind[] } {
    return {
      truncated: truncated || this.#cut.size > 0,
      warnings: [...warnings, ...[...this.#cut].filter((kind) => !warnings.includes(kind))],
    }
  }
}

/** A run as its client named it. */
export interface NamedRun {
  readonly agent?: string | undefined
  readonly agent_id?: string | undefined
  readonly argv: readonly string[]
}

/** Commands that help after a denial, one per line. */
const nextOfDenial = ({ denial_reason, agent_id }: RunOutcome, named: NamedRun): { next?: string } => {
  if (denial_reason === null) return {}
  const host = named.agent ?? named.agent_id ?? agent_id
  return { next: denialText(denial_reason, { host, argv: named.argv }).next.join('\n') }
}

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

/** Begins the JSON of an output event without an escape check, because output is most of what the server writes. */
export const outputHead = ({ type, request_id, seq }: Extract<RunEvent, { data: Uint8Array }>): string =>
  `{"type":"${type}","request_id":"${request_id}","seq":${seq}`

/** Writes events as they arrive. A slow client pauses the run and occupies no memory. */
export class StreamedRun implements RunSink {
  readonly #stream: EventStream
  readonly #discardRest: () => Promise<void>
  #requestId: RequestId | null = null

  /** `discardRest`: drops the part of a streamed body that the client still sends after the run has ended. */
  constructor(stream: EventStream, discardRest: () => Promise<void>) {
    this.#stream = stream
    this.#discardRest = discardRest
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

  /** Reports an error as the last line of a stream that has begun. Returns false if no status line was sent. */
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

/** The stream format that the Accept header names. Null means one JSON object at the end. */
export const streamFormat = (accept: string | undefined): StreamFormat | null => {
  const types = (accept ?? '').split(',').map((part) => part.split(';')[0]!.trim().toLowerCase())
  if (types.includes(RAW_RUN_TYPE)) return 'raw'
  if (types.includes('application/x-ndjson')) return 'ndjson'
  return types.includes('text/event-stream') ? 'sse' : null
}

/** Aborts when the client disconnects before it has its answer. */
export const closeSignal = (reply: FastifyReply): AbortSignal => {
  const controller = new AbortController()
  const raw: ServerResponse = reply.raw
  raw.once('close', () => {
    if (!raw.writableFinished) controller.abort(new AppError('conflict', 'the client disconnected'))
  })
  if (raw.destroyed) controller.abort(new AppError('conflict', 'the client disconnected'))
  return controller.signal
}
