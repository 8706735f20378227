import { randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../base/clock.ts'
import { isAppError } from '../base/errors.ts'
import { type Stage, type StageReached, nowUs, onStage } from '../base/run-stages.ts'
import type { Startable } from '../base/startable.ts'
import { type RequestId, fromHex, toHex } from '../protocol/ids.ts'
import { MAX_TRACED_DETACHED, MAX_TRACED_RUNS } from '../protocol/limits/daemon.ts'
import { KILL_GRACE_MS, LEASE_EXPIRES_MS } from '../protocol/limits/wire.ts'
import { SPAN_ID_BYTES, TRACE_ID_BYTES, type TraceContext } from '../protocol/trace-context.ts'
import type { ExecFrame } from '../protocol/wire/exec.ts'
import type { RequesterCounters } from './counters.ts'
import type { RunOutcome } from './run-spec.ts'
import { OWN_LINK, type RunPeer } from './transport.ts'

/** Spans between two stages of a run. */
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

/** SpanKind of OpenTelemetry. */
const KINDS = { internal: 1, server: 2, client: 3 } as const
/** StatusCode of OpenTelemetry. */
const STATUS_ERROR = 2

export type SpanAttributes = Readonly<Record<string, string | number>>

/** Trace of one run, as its requester or its target sees it. Times are microseconds of the monotonic clock. */
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

  /** Context for spans below this one. */
  get context(): TraceContext {
    return { traceId: this.#traceId, spanId: this.#spanId }
  }

  /** Joins the trace of the requester. Only the first context counts. */
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

  /** The spans in OTLP's JSON. `epoch` is the offset in microseconds from the monotonic clock to Unix time. `newId` creates a span ID. */
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

/** A run that is not resumed has ended after its lease and the five seconds that a program has after SIGTERM. */
const LOST_MS = LEASE_EXPIRES_MS + KILL_GRACE_MS

/** Receives the traces of ended runs. */
export interface TraceSink {
  add(run: TracedRun): void
}

const newId = (bytes: number): string => randomBytes(bytes).toString('hex')
export const newSpanId = (): string => newId(SPAN_ID_BYTES)

type RunTracesDeps = { readonly sink: TraceSink; readonly counters: RequesterCounters; readonly clock: Clock }

/** Records the stages of requested runs and of peers' runs, in both processes, and exports their traces. */
export class RunTraces implements Startable {
  readonly #deps: RunTracesDeps
  readonly #runs = { client: new Map<RequestId, TracedRun>(), server: new Map<RequestId, TracedRun>() }
  /** Detached runs of peers that continue without their requester, oldest first. */
  readonly #outliving = new Map<RequestId, TracedRun>()
  /** Runs of peers whose stream was lost. */
  readonly #lost = new Map<RequestId, Timer>()
  #stop: () => void = () => undefined

  constructor(deps: RunTracesDeps) {
    this.#deps = deps
  }

  start(): void {
    this.#stop = onStage((reached) => this.#reached(reached))
  }

  stop(): void {
    this.#stop()
    for (const timer of this.#lost.values()) timer.cancel()
    this.#lost.clear()
  }

  /** Starts the trace of a requested run. `parent` is the client's context, or null to start a trace. Returns the context for the target, or null if there are too many traces. */
  asked(requestId: RequestId, parent: TraceContext | null): TraceContext | null {
    return this.#start('client', requestId, parent)
  }

  /** Ends the trace of a requested run. */
  answered(requestId: RequestId, attributes: SpanAttributes, failed: boolean): void {
    this.#end(this.#runs.client, requestId, attributes, failed)
  }

  /** Starts the trace of a peer's run. A detached run (`mayOutlive`) that is requested again keeps its trace. */
  arrived(requestId: RequestId, mayOutlive = false): void {
    if (mayOutlive) this.resumed(requestId)
    const isKnown = mayOutlive && (this.#runs.server.has(requestId) || this.#outliving.has(requestId))
    if (!isKnown) this.#start('server', requestId, null)
  }

  joined(requestId: RequestId, parent: TraceContext): void {
    const run = this.#runs.server.get(requestId) ?? this.#outliving.get(requestId)
    run?.join(parent)
  }

  /** Records that the requester was informed that the run continues. The executor reports its end. */
  outlives(requestId: RequestId): void {
    const { server } = this.#runs
    const run = server.get(requestId)
    if (run === undefined || run.isOver) return
    server.delete(requestId)
    this.#outliving.set(requestId, run)
    if (this.#outliving.size <= MAX_TRACED_DETACHED) return
    const [oldest] = this.#outliving.keys()
    this.#outliving.delete(oldest!)
    this.#deps.counters.add('spans_dropped')
  }

  /** Ends the trace of a peer's run, because the executor has finished it. */
  left(requestId: RequestId): void {
    this.resumed(requestId)
    this.#end(this.#runs.server, requestId, {}, false)
  }

  /** Records a lost stream. The trace continues if the run is resumed. Otherwise it ends after `LOST_MS`. */
  lost(requestId: RequestId): void {
    if (!this.#runs.server.has(requestId)) return
    this.resumed(requestId)
    const at = nowUs()
    const end = (): void => {
      this.#lost.delete(requestId)
      this.#end(this.#runs.server, requestId, {}, true, at)
    }
    this.#lost.set(requestId, this.#deps.clock.setTimeout(end, LOST_MS))
  }

  resumed(requestId: RequestId): void {
    this.#lost.get(requestId)?.cancel()
    this.#lost.delete(requestId)
  }

  #start(kind: 'client' | 'server', requestId: RequestId, parent: TraceContext | null): TraceContext | null {
    const runs = this.#runs[kind]
    if (runs.size >= MAX_TRACED_RUNS || runs.has(requestId)) {
      this.#deps.counters.add('spans_dropped')
      return null
    }
    const run = new TracedRun({ kind, requestId, parent, traceId: newId(TRACE_ID_BYTES), spanId: newSpanId(), at: nowUs() })
    runs.set(requestId, run)
    return run.context
  }

  /** `at` is an earlier end, unless a later stage was reached. */
  #end(runs: Map<RequestId, TracedRun>, requestId: RequestId, attributes: SpanAttributes, failed: boolean, at = nowUs()): void {
    const run = runs.get(requestId)
    if (run === undefined) return
    runs.delete(requestId)
    run.end(Math.max(at, run.lastStageAt), attributes, failed)
    this.#deps.sink.add(run)
  }

  /** A run of this daemon on itself has the stages of both sides. */
  #reached(reached: StageReached): void {
    const { client, server } = this.#runs
    const id = reached.request_id
    for (const runs of [server, client, this.#outliving]) runs.get(id)?.reached(reached)
    if (reached.stage === 'over') this.#end(this.#outliving, id, {}, false, reached.at_us)
  }
}

export type RequestTraces = Pick<RunTraces, 'asked' | 'answered'>

export interface Traced {
  readonly requestId: RequestId
  /** Context of the client. If absent, the run starts a trace. */
  readonly trace?: TraceContext | 'not_sampled' | undefined
}

/** Traces `work`. `ended` returns the attributes of its result and whether it failed. Without `kept`, tracing is off. */
export const traced = async <Answer>(
  kept: RequestTraces | null | undefined,
  { requestId, trace }: Traced,
  work: (context: TraceContext | null) => Promise<Answer>,
  ended: (answer: Answer) => { readonly attributes: SpanAttributes; readonly failed: boolean },
): Promise<Answer> => {
  if (trace === 'not_sampled' || !kept) return work(null)
  const context = kept.asked(requestId, trace ?? null)
  try {
    const answer = await work(context)
    const { attributes, failed } = ended(answer)
    kept.answered(requestId, attributes, failed)
    return answer
  } catch (error) {
    kept.answered(requestId, { 'error.type': isAppError(error) ? error.code : 'internal' }, true)
    throw error
  }
}

export const outcomeOfTrace = ({ code, denial_reason, incomplete, ok }: RunOutcome): { attributes: SpanAttributes; failed: boolean } => ({
  attributes: {
    'x0x.outcome': incomplete ? 'incomplete' : denial_reason === null ? 'ended' : 'denied',
    ...(denial_reason !== null && { 'x0x.denial_reason': denial_reason }),
    ...(code !== null && { 'process.exit.code': code }),
  },
  failed: !ok,
})

/** The frame that passes a trace context to the target. Null without a trace, and on the daemon's link to itself, where this process traces both ends. */
export const traceFrame = ({ number }: RunPeer, request_id: RequestId, trace: TraceContext | null): ExecFrame | null =>
  trace === null || number === OWN_LINK
    ? null
    : { type: 'trace', request_id, trace_id: fromHex(trace.traceId), span_id: fromHex(trace.spanId) }

export const contextOf = ({ trace_id, span_id }: Extract<ExecFrame, { type: 'trace' }>): TraceContext => ({
  traceId: toHex(trace_id),
  spanId: toHex(span_id),
})
