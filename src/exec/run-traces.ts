import { randomBytes } from 'node:crypto'
import type { Clock, Timer } from '../base/clock.ts'
import { type StageReached, nowUs, onStage } from '../base/stages.ts'
import type { Startable } from '../base/startable.ts'
import type { RequestId } from '../protocol/ids.ts'
import { KILL_GRACE_MS, LEASE_EXPIRES_MS } from '../protocol/limits.ts'
import { MAX_TRACED_DETACHED, MAX_TRACED_RUNS } from '../protocol/local-limits.ts'
import { SPAN_ID_BYTES, TRACE_ID_BYTES, type TraceContext } from '../protocol/trace-context.ts'
import type { RequesterCounters } from './counters.ts'
import { type SpanAttributes, TracedRun } from './run-spans.ts'

/** A run that nobody resumes is ended by then: its lease, and the five seconds that a program has after SIGTERM. */
const LOST_MS = LEASE_EXPIRES_MS + KILL_GRACE_MS

/** Where runs go that are over. */
export interface TraceSink {
  add(run: TracedRun): void
}

const newId = (bytes: number): string => randomBytes(bytes).toString('hex')
export const newSpanId = (): string => newId(SPAN_ID_BYTES)

/** Follows runs, those that this daemon asks for and those of peers, by their stages in both halves, and hands over what they took. */
export class RunTraces implements Startable {
  readonly #sink: TraceSink
  readonly #counters: RequesterCounters
  readonly #runs = { client: new Map<RequestId, TracedRun>(), server: new Map<RequestId, TracedRun>() }
  /** Runs of peers that go on without them, the oldest first. */
  readonly #outliving = new Map<RequestId, TracedRun>()
  /** Runs of peers whose stream was lost. */
  readonly #lost = new Map<RequestId, Timer>()
  readonly #clock: Clock
  #stop: () => void = () => undefined

  constructor(components: { sink: TraceSink; counters: RequesterCounters; clock: Clock }) {
    this.#clock = components.clock
    this.#sink = components.sink
    this.#counters = components.counters
  }

  start(): void {
    this.#stop = onStage((reached) => this.#reached(reached))
  }

  stop(): void {
    this.#stop()
    for (const timer of this.#lost.values()) timer.cancel()
    this.#lost.clear()
  }

  /** A run of ours begins. `parent`: of its caller; null: it begins a trace. Answers what the other side is told; null: there are too many. */
  asked(requestId: RequestId, parent: TraceContext | null): TraceContext | null {
    return this.#begin('client', requestId, parent)
  }

  /** … and has ended. */
  answered(requestId: RequestId, attributes: SpanAttributes, failed: boolean): void {
    this.#end(this.#runs.client, requestId, attributes, failed)
  }

  /** A run of a peer begins. `mayOutlive` its caller: asked for again it is the same run, with the trace that it has. */
  arrived(requestId: RequestId, mayOutlive = false): void {
    if (mayOutlive) this.resumed(requestId)
    const isKnown = mayOutlive && (this.#runs.server.has(requestId) || this.#outliving.has(requestId))
    if (!isKnown) this.#begin('server', requestId, null)
  }

  /** Its requester says where it belongs. */
  joined(requestId: RequestId, parent: TraceContext): void {
    const run = this.#runs.server.get(requestId) ?? this.#outliving.get(requestId)
    run?.join(parent)
  }

  /** Its requester is told that it goes on: its end is the executor's word. */
  outlives(requestId: RequestId): void {
    const { server } = this.#runs
    const run = server.get(requestId)
    if (run === undefined || run.isOver) return
    server.delete(requestId)
    this.#outliving.set(requestId, run)
    if (this.#outliving.size <= MAX_TRACED_DETACHED) return
    const [oldest] = this.#outliving.keys()
    this.#outliving.delete(oldest!)
    this.#counters.add('spans_dropped')
  }

  /** … and the executor is done with it. */
  left(requestId: RequestId): void {
    this.resumed(requestId)
    this.#end(this.#runs.server, requestId, {}, false)
  }

  /** Its stream was lost: it goes on when it is resumed, or is over when its lease and the end of its program are. */
  lost(requestId: RequestId): void {
    if (!this.#runs.server.has(requestId)) return
    this.resumed(requestId)
    const at = nowUs()
    const end = (): void => {
      this.#lost.delete(requestId)
      this.#end(this.#runs.server, requestId, {}, true, at)
    }
    this.#lost.set(requestId, this.#clock.setTimeout(end, LOST_MS))
  }

  resumed(requestId: RequestId): void {
    this.#lost.get(requestId)?.cancel()
    this.#lost.delete(requestId)
  }

  #begin(kind: 'client' | 'server', requestId: RequestId, parent: TraceContext | null): TraceContext | null {
    const runs = this.#runs[kind]
    if (runs.size >= MAX_TRACED_RUNS || runs.has(requestId)) {
      this.#counters.add('spans_dropped')
      return null
    }
    const run = new TracedRun({ kind, requestId, parent, traceId: newId(TRACE_ID_BYTES), spanId: newSpanId(), at: nowUs() })
    runs.set(requestId, run)
    return run.context
  }

  /** `at`: where it ended before that; a later stage of it counts. */
  #end(runs: Map<RequestId, TracedRun>, requestId: RequestId, attributes: SpanAttributes, failed: boolean, at = nowUs()): void {
    const run = runs.get(requestId)
    if (run === undefined) return
    runs.delete(requestId)
    run.end(Math.max(at, run.lastStageAt), attributes, failed)
    this.#sink.add(run)
  }

  /** A run to ourselves has both sides' stages, and no peer. */
  #reached(reached: StageReached): void {
    const { client, server } = this.#runs
    const id = reached.request_id
    for (const runs of [server, client, this.#outliving]) runs.get(id)?.reached(reached)
    if (reached.stage === 'over') this.#end(this.#outliving, id, {}, false, reached.at_us)
  }
}
