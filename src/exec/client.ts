import { type Clock, within } from '../base/clock.ts'
import { isAppError } from '../base/errors.ts'
import { Semaphore } from '../base/semaphore.ts'
import { reach } from '../base/run-stages.ts'
import type { Startable } from '../base/startable.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import { newRequestId } from '../identity/request-id.ts'
import type { RunSession } from '../protocol/api-answers.ts'
import type { LifecycleLog } from '../protocol/events/event-log.ts'
import { RunReporter } from '../protocol/events/run-reporter.ts'
import type { MachineId, RequestId } from '../protocol/ids.ts'
import { MAX_FANOUT_DIALS, MAX_FANOUT_SIGNING } from '../protocol/limits/fleet.ts'
import { SHUTDOWN_MS } from '../protocol/limits/wire.ts'
import type { TraceContext } from '../protocol/trace-context.ts'
import type { RequesterCounter, RequesterCounters } from './counters.ts'
import type { SignedBody } from './exit.ts'
import { OutgoingRun } from './outgoing-run.ts'
import { type RunOutcome, type RunSink, type RunSpec, checkSpec } from './run-spec.ts'
import { type RequestTraces, outcomeOfTrace, traceFrame, traced } from './run-traces.ts'
import { type OutgoingRunEntry, OutgoingRuns } from './outgoing-runs.ts'
import { type ChannelSource, type RunTransport, Transports } from './transport.ts'

/** The sink, with the story of its run before it. */
export const withReporter = (story: RunReporter, sink: RunSink): RunSink => ({
  event: (event) => {
    if (event.type === 'stdout' || event.type === 'stderr') story.output(event.data)
    else if (event.type === 'started') story.started()
    else if (event.type === 'waiting_for_approval') story.waits(event.expires_in_ms)
    return sink.event(event)
  },
  sent: () => sink.sent?.(),
})

export const reportEnd = (story: RunReporter, { denial_reason, duration_ms, ...end }: RunOutcome): void => {
  if (denial_reason === null) story.finished({ ...end, duration_ms })
  else story.denied(denial_reason, duration_ms)
}

/** `sent`: the other side may have run it. */
export const reportFailure = (story: RunReporter, error: unknown, sent: boolean): void => {
  if (sent) story.lost()
  else story.denied(isAppError(error) ? error.code : 'internal')
}

/** Of what everybody shares, the parts that runs of fan-outs may use at once: they queue here, among themselves, and nobody else stands behind them. */
export class FanoutLimits {
  readonly dials = new Semaphore({ limit: MAX_FANOUT_DIALS })
  readonly signing = new Semaphore({ limit: MAX_FANOUT_SIGNING })
}

/** Does the work in a place of its lane; null: it needs none. */
export const withSlot = async <T>(lane: Semaphore | null, signal: AbortSignal, work: () => Promise<T>): Promise<T> =>
  lane === null ? work() : lane.use(signal, work)

export interface ExecClientComponents {
  /** Null where there is no mesh: then only this daemon itself can be asked. */
  readonly links: ChannelSource | null
  readonly executor: Pick<ExecutorClient, 'identity' | 'mintNonces' | 'signRequest' | 'openRun' | 'drained'>
  readonly clock: Clock
  readonly counters: RequesterCounters
  /** Hears what becomes of each run. */
  readonly lifecycle: Pick<LifecycleLog, 'add'>
  /** Absent or null: no traces are kept. */
  readonly traces?: RequestTraces | null
}

/** Every run that a door asks for goes through here, for this agent and for others. */
export class ExecClient implements Startable {
  readonly #parts: ExecClientComponents
  readonly #sessions: OutgoingRuns
  readonly #transports: Transports
  readonly #lanes = new FanoutLimits()

  constructor(components: ExecClientComponents) {
    this.#parts = components
    this.#sessions = new OutgoingRuns({ clock: components.clock })
    this.#transports = new Transports(components)
  }

  /**
   * Runs the spec's argv on its agent and shows the sink what happens. Denials and exits are outcomes.
   * `signal` is the caller leaving: the run is cancelled at once and the sink is called no more. Absent: nobody leaves.
   * Errors: `bad_request` (argv too large, not well-formed), `conflict` (request id used before,
   * cancelled before it was sent), `rate_limited`, `shutting_down`, what dialling throws (`unknown_agent`,
   * `peer_unreachable`, `peer_rejected`, `timeout`), and what the caller's own sink or stdin throws.
   */
  async run(spec: RunSpec, sink: RunSink, signal?: AbortSignal): Promise<RunOutcome> {
    checkSpec(spec)
    const session = this.#sessions.open(spec.request_id ?? newRequestId(), spec)
    const { executor, lifecycle } = this.#parts
    const { requestId: run_id } = session
    const story = new RunReporter(
      { tell: (facts) => lifecycle.add(facts) },
      { owner: executor.identity.agentId, session: spec.session ?? null, door: 'rest', run_id, node: spec.agent_id },
    )
    session.story = story
    const run = async (trace: TraceContext | null): Promise<RunOutcome> =>
      this.#run(spec, withReporter(story, sink), session, trace, signal)
    try {
      const outcome = await traced(this.#parts.traces, { requestId: run_id, trace: spec.trace }, run, outcomeOfTrace)
      if (outcome.never_arrived === true) session.neverArrived()
      reportEnd(story, outcome)
      return outcome
    } catch (error) {
      reportFailure(story, error, session.info.machine_id !== null)
      throw error
    } finally {
      session.close()
    }
  }

  /** Throws what `run` would throw for want of room, before anything is read for it. */
  checkRoom(): void {
    this.#sessions.checkRoom()
  }

  /** Ends a run of ours; its caller still gets the outcome. Throws `unknown_run`. */
  cancel(requestId: RequestId): void {
    this.#sessions.cancel(requestId)
  }

  /** Runs that have not ended, oldest first. */
  sessions(): RunSession[] {
    return this.#sessions.list()
  }

  /** Throws `unknown_run`. */
  output(requestId: RequestId): ReturnType<OutgoingRuns['output']> {
    return this.#sessions.output(requestId)
  }

  /** Counters of the asking side, and of the runs that peers opened here. */
  diagnostics(): Record<RequesterCounter, number> {
    return this.#parts.counters.snapshot()
  }

  /** Cancels everything, and takes nothing new. Resolves when the last run is over, or after `SHUTDOWN_MS` without it. */
  async stop(): Promise<void> {
    await within(this.#parts.clock, SHUTDOWN_MS, this.#sessions.stop())
  }

  /** There is a better way to this machine than the one on which runs there began: they go on over it. */
  move(machineId: MachineId): void {
    this.#sessions.move(machineId)
  }

  /** Until the Request is sent, the caller leaving or the session cancelled throws the signal's reason. */
  async #run(spec: RunSpec, sink: RunSink, session: OutgoingRunEntry, trace: TraceContext | null, left?: AbortSignal): Promise<RunOutcome> {
    const { clock, counters, executor } = this.#parts
    const { requestId } = session
    const unsent = left === undefined ? session.cancelled : AbortSignal.any([session.cancelled, left])
    unsent.throwIfAborted()
    reach('asked', requestId)
    const lanes = spec.fanout === undefined ? null : this.#lanes
    const dials = lanes !== null && this.#transports.mustDial(spec.agent_id) ? lanes.dials : null
    const transport = await withSlot(dials, unsent, async () => this.#transports.open(spec.agent_id, requestId, unsent))
    reach('connected', requestId)
    try {
      // Also when it is signed again: many that were lost together come back together.
      const sign = async (on: RunTransport): Promise<SignedBody> =>
        withSlot(lanes?.signing ?? null, unsent, async () => this.#sign(on, spec, requestId))
      const request = await sign(transport)
      unsent.throwIfAborted()
      const expected = { requestId, from: transport.peer, to: executor.identity }
      const reopen = this.#transports.reopenerOf(transport, requestId)
      const run = new OutgoingRun(
        { transport, reopen, clock, counters, sink, session, sign },
        { spec, expected, request, trace: traceFrame(transport.peer, requestId, trace) },
      )
      session.requested(transport.peer.machineId)
      return await run.run(left)
    } catch (error) {
      transport.abort()
      throw error
    }
  }

  async #sign({ peer, streamNonce }: RunTransport, spec: RunSpec, requestId: RequestId): Promise<SignedBody> {
    const { argv, stdin, timeout_ms, cwd, clamp, proof, fanout } = spec
    const request = {
      link: peer.number,
      request_id: requestId,
      stream_nonce: streamNonce,
      argv: [...argv],
      stdin: stdin === null ? null : { len: stdin.len, pieces: [...stdin.pieces] },
      timeout_ms,
      cwd,
      clamp,
    }
    return this.#parts.executor.signRequest(request, proof, fanout?.id)
  }
}
