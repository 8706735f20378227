import { within } from '../base/clock.ts'
import { isAppError } from '../base/errors.ts'
import { Semaphore } from '../base/semaphore.ts'
import { reach } from '../base/run-stages.ts'
import { NO_PROOF } from '../executor-api/messages.ts'
import type { Startable } from '../base/startable.ts'
import { newRequestId } from '../identity/request-id.ts'
import type { RunSession } from '../protocol/api-answers.ts'
import { RunReporter } from '../protocol/events/run-reporter.ts'
import { isFileCommand } from '../protocol/file-command.ts'
import type { MachineId, RequestId } from '../protocol/ids.ts'
import { MAX_FANOUT_DIALS, MAX_FANOUT_SIGNING } from '../protocol/limits/fleet.ts'
import { SHUTDOWN_MS } from '../protocol/limits/wire.ts'
import type { TraceContext } from '../protocol/trace-context.ts'
import type { RequesterCounter } from './counters.ts'
import type { SignedBody } from './exit.ts'
import { OutgoingRun } from './outgoing-run.ts'
import { type RunOutcome, type RunSink, type RunSpec, checkSpec } from './run-spec.ts'
import { outcomeOfTrace, traceFrame, traced } from './run-traces.ts'
import { type OutgoingRunEntry, OutgoingRuns } from './outgoing-runs.ts'
import type { NetworkServices } from './services.ts'
import { type RunTransport, Transports } from './transport.ts'

/** Wraps a sink, so that the reporter sees each event first. Without `showsOutput`, events have no output of the run. */
export const withReporter = (reporter: RunReporter, sink: RunSink, showsOutput = true): RunSink => ({
  event: (event) => {
    if (event.type === 'stdout' || event.type === 'stderr') {
      if (showsOutput) reporter.output(event.data)
    } else if (event.type === 'started') reporter.started()
    else if (event.type === 'waiting_for_approval') reporter.waits(event.expires_in_ms)
    return sink.event(event)
  },
  sent: () => sink.sent?.(),
  connection: (state) => sink.connection?.(state),
})

export const reportEnd = (reporter: RunReporter, { denial_reason, duration_ms, ...end }: RunOutcome): void => {
  if (denial_reason === null) reporter.finished({ ...end, duration_ms })
  else reporter.denied(denial_reason, duration_ms)
}

/** `sent` is true if the target may have run it. */
export const reportFailure = (reporter: RunReporter, error: unknown, sent: boolean): void => {
  if (sent) reporter.lost()
  else reporter.denied(isAppError(error) ? error.code : 'internal')
}

/** Limits how much of the shared resources the runs of fan-outs use at once, so that other runs never queue behind them. */
export class FanoutLimits {
  readonly dials = new Semaphore({ limit: MAX_FANOUT_DIALS })
  readonly signing = new Semaphore({ limit: MAX_FANOUT_SIGNING })
}

/** Runs work in a slot of this semaphore, or directly if it is null. */
export const withSlot = async <T>(semaphore: Semaphore | null, signal: AbortSignal, work: () => Promise<T>): Promise<T> =>
  semaphore === null ? work() : semaphore.use(signal, work)

type ExecClientDeps = Pick<NetworkServices, 'clock' | 'counters' | 'executor' | 'lifecycle' | 'links' | 'traces'>

/** Starts and tracks every run that this daemon requests, on other agents and on its own. */
export class ExecClient implements Startable {
  readonly #deps: ExecClientDeps
  readonly #sessions: OutgoingRuns
  readonly #transports: Transports
  readonly #fanoutLimits = new FanoutLimits()

  constructor(deps: ExecClientDeps) {
    this.#deps = deps
    this.#sessions = new OutgoingRuns(deps)
    this.#transports = new Transports(deps)
  }

  /**
   * Runs the spec on its agent and passes the events to the sink. Denials and exits are outcomes. When `signal` aborts, because the client
   * disconnected, the run is cancelled and the sink gets no further calls. Throws `bad_request` (argv too large, not well-formed),
   * `rate_limited` and `shutting_down`. Throws `conflict` (request ID used before, cancelled before it was sent). Throws dial errors
   * (`unknown_agent`, `peer_unreachable`, `peer_rejected`, `timeout`), and the errors of the sink and of stdin.
   */
  async run(spec: RunSpec, sink: RunSink, signal?: AbortSignal): Promise<RunOutcome> {
    checkSpec(spec)
    const session = this.#sessions.open(spec.request_id ?? newRequestId(), spec)
    const { executor, lifecycle } = this.#deps
    const { requestId: run_id } = session
    const reporter = new RunReporter(
      { tell: (facts) => lifecycle.add(facts) },
      { owner: executor.identity.agentId, session: spec.session ?? null, door: 'rest', run_id, node: spec.agent_id },
    )
    session.reporter = reporter
    const run = async (trace: TraceContext | null): Promise<RunOutcome> =>
      this.#run(spec, withReporter(reporter, sink, !isFileCommand(spec.argv)), session, trace, signal)
    try {
      const outcome = await traced(this.#deps.traces, { requestId: run_id, trace: spec.trace }, run, outcomeOfTrace)
      if (outcome.never_arrived === true) session.neverArrived()
      reportEnd(reporter, outcome)
      return outcome
    } catch (error) {
      reportFailure(reporter, error, session.info.machine_id !== null)
      throw error
    } finally {
      session.close()
    }
  }

  /** Throws as `run` if there are too many runs, before the client's body is read. */
  checkRoom(): void {
    this.#sessions.checkRoom()
  }

  /** Cancels a run. Its client still gets the outcome. Throws `unknown_run`. */
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

  diagnostics(): Record<RequesterCounter, number> {
    return this.#deps.counters.snapshot()
  }

  /** Cancels all runs and refuses new ones. Resolves when the last run has ended, or after `SHUTDOWN_MS`. */
  async stop(): Promise<void> {
    await within(this.#deps.clock, SHUTDOWN_MS, this.#sessions.stop())
  }

  /** Moves the runs on this machine to its new direct connection. */
  move(machineId: MachineId): void {
    this.#sessions.move(machineId)
  }

  /** Until the Request is sent, a cancellation or a disconnected client makes this throw the signal's reason. */
  async #run(spec: RunSpec, sink: RunSink, session: OutgoingRunEntry, trace: TraceContext | null, left?: AbortSignal): Promise<RunOutcome> {
    const { clock, counters, executor } = this.#deps
    const { requestId } = session
    const unsent = left === undefined ? session.cancelled : AbortSignal.any([session.cancelled, left])
    unsent.throwIfAborted()
    reach('asked', requestId)
    const limits = spec.fanout === undefined ? null : this.#fanoutLimits
    const dials = limits !== null && this.#transports.mustDial(spec.agent_id) ? limits.dials : null
    const transport = await withSlot(dials, unsent, async () => this.#transports.open(spec.agent_id, requestId, unsent))
    reach('connected', requestId)
    try {
      // A Request that is signed again takes a slot too, because many runs may lose their connection together.
      const sign = async (on: RunTransport): Promise<SignedBody> =>
        withSlot(limits?.signing ?? null, unsent, async () => this.#sign(on, spec, requestId))
      const request = await sign(transport)
      unsent.throwIfAborted()
      const expected = { requestId, from: transport.peer, to: executor.identity }
      const reopen = this.#transports.reopenerOf(transport, requestId)
      const run = new OutgoingRun(
        { transport, reopen, clock, counters, sink, session, sign, signInput: async (call) => executor.signTerminalInput(call) },
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
    const { argv, stdin, terminal, timeout_ms, cwd, clamp, proof = NO_PROOF, fanout } = spec
    const asked = { link: peer.number, request_id: requestId, stream_nonce: streamNonce, argv: [...argv] }
    if (terminal !== undefined) {
      const { columns, rows, term } = terminal
      return this.#deps.executor.signTerminalRequest({ ...asked, timeout_ms, clamp, columns, rows, term, ...proof })
    }
    const request = {
      ...asked,
      stdin: stdin === null ? null : { len: stdin.len, pieces: [...stdin.pieces] },
      timeout_ms,
      cwd,
      clamp,
    }
    return this.#deps.executor.signRequest(request, proof, fanout?.id)
  }
}
