import type { Stage, StageReached } from '../base/stages.ts'
import type { TraceContext } from '../protocol/trace-context.ts'

/** What a run took between two of its stages. */
const PARTS: readonly (readonly [name: string, from: Stage, to: Stage])[] = [
  ['connect', 'asked', 'connected'],
  ['sign', 'sign_asked', 'signed'],
  ['wait for exit', 'sent', 'exit_received'],
  ['wait for begin', 'sent', 'begun'],
  ['verify', 'exit_received', 'exit_verified'],
  ['decide', 'received', 'permitted'],
  ['journal', 'permitted', 'journalled'],
  ['spawn', 'journalled', 'spawned'],
  ['program', 'spawned', 'ended'],
  ['sign exit', 'ended', 'exit_signed'],
]

/** OpenTelemetry's SpanKind. */
const KINDS = { internal: 1, server: 2, client: 3 } as const
/** … and StatusCode. */
const STATUS_ERROR = 2

export type SpanAttributes = Readonly<Record<string, string | number>>

/** One run as one side of it sees it, from its beginning to its end; times in microseconds of the monotonic clock. */
export class TracedRun {
  readonly kind: 'client' | 'server'
  readonly #spanId: string
  readonly #startedAt: number
  readonly #stages = new Map<Stage, number>()
  #traceId: string
  #parent: string | null
  #endedAt = 0
  #attributes: SpanAttributes
  #failed = false

  constructor(init: {
    kind: 'client' | 'server'
    requestId: string
    parent: TraceContext | null
    traceId: string
    spanId: string
    at: number
  }) {
    const { kind, requestId, parent, traceId, spanId, at } = init
    this.kind = kind
    this.#traceId = parent?.traceId ?? traceId
    this.#parent = parent?.spanId ?? null
    this.#spanId = spanId
    this.#startedAt = at
    this.#attributes = { 'x0x.request_id': requestId }
  }

  /** For spans below this one. */
  get context(): TraceContext {
    return { traceId: this.#traceId, spanId: this.#spanId }
  }

  /** The other side said where it belongs; the first word counts. */
  join({ traceId, spanId }: TraceContext): void {
    if (this.#parent !== null) return
    this.#traceId = traceId
    this.#parent = spanId
  }

  get isOver(): boolean {
    return this.#stages.has('over')
  }

  get lastStageAt(): number {
    return Math.max(0, ...this.#stages.values())
  }

  reached({ stage, at_us }: StageReached): void {
    if (!this.#stages.has(stage)) this.#stages.set(stage, at_us)
  }

  end(at: number, attributes: SpanAttributes, failed: boolean): void {
    this.#endedAt = at
    this.#attributes = { ...this.#attributes, ...attributes }
    this.#failed = failed
  }

  /** In OTLP's JSON. `epoch`: microseconds from the monotonic clock's zero to that of Unix time. `newId`: of a span. */
  spans(epoch: number, newId: () => string): object[] {
    const span = (name: string, kind: keyof typeof KINDS, spanId: string, parent: string | null, from: number, to: number): object => ({
      traceId: this.#traceId,
      spanId,
      ...(parent !== null && { parentSpanId: parent }),
      name: `x0x ${name}`,
      kind: KINDS[kind],
      startTimeUnixNano: `${epoch + from}000`,
      endTimeUnixNano: `${epoch + to}000`,
    })
    const parts = PARTS.flatMap(([name, first, last]) => {
      const [from, to] = [this.#stages.get(first), this.#stages.get(last)]
      return from === undefined || to === undefined ? [] : [span(name, 'internal', newId(), this.#spanId, from, to)]
    })
    const attributes = Object.entries(this.#attributes).map(([key, value]) => ({
      key,
      value: typeof value === 'number' ? { intValue: String(value) } : { stringValue: value },
    }))
    const whole = span(this.kind === 'client' ? 'exec' : 'run', this.kind, this.#spanId, this.#parent, this.#startedAt, this.#endedAt)
    return [{ ...whole, attributes, ...(this.#failed && { status: { code: STATUS_ERROR } }) }, ...parts]
  }
}
