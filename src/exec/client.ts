import { within } from '../base/clock.ts'
import { AppError, isAppError } from '../base/errors.ts'
import { Semaphore } from '../base/semaphore.ts'
import { reach } from '../base/run-stages.ts'
import { NO_PROOF } from '../executor-api/messages.ts'
import type { Startable } from '../base/startable.ts'
import { newRequestId } from '../identity/request-id.ts'
import type { RunSession } from '../protocol/api-answers.ts'
import { RunReporter } from '../protocol/events/run-reporter.ts'
import { isFileCommand } from '../protocol/file-command.ts'
import type { MachineId, RequestId } from '../protocol/ids.ts'
import { DRAIN_WAIT_MS } from '../protocol/limits/daemon.ts'
import { MAX_FANOUT_DIALS, MAX_FANOUT_SIGNING } from '../protocol/limits/fleet.ts'
import { EXIT_WAIT_SLACK_MS, SHUTDOWN_MS } from '../protocol/limits/wire.ts'
import type { TraceContext } from '../protocol/trace-context.ts'
import type { RequesterCounter } from './counters.ts'
import type { SignedBody } from './exit.ts'
import { OutgoingRun } from './outgoing-run.ts'
import { untilBack } from './drain-wait.ts'
import { RepeatableSpec } from './repeatable-input.ts'
import { type RunOutcome, type RunSink, type RunSpec, checkSpec } from './run-spec.ts'
import { outcomeOfTrace, traceFrame, traced } from './run-traces.ts'
import { type OutgoingRunEntry, OutgoingRuns } from './outgoing-runs.ts'
import type { NetworkServices } from './services.ts'
import { type RunTransport, Transports, isTargetGone } from './transport.ts'

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
  notSent: () => sink.notSent?.(),
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

const DRAINING_TEXT = `the target is draining (restarting); asking again for up to ${DRAIN_WAIT_MS / 60_000} minutes`

interface RunTies {
  readonly trace: TraceContext | null
  /** Aborts when the client disconnects. */
  readonly left: AbortSignal | undefined
}

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
      this.#untilBack(spec, withReporter(reporter, sink, !isFileCommand(spec.argv)), session, { trace, left: signal })
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

  /** While true, new runs are refused, but not those of fan-outs and copies. */
  drain(isDraining: boolean): void {
    this.#sessions.isDraining = isDraining
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

  /**
   * Repeats the run under the same request ID while its target drains. A run of this daemon itself is not repeated, because its own drain
   * waits for the client.
   */
  async #untilBack(spec: RunSpec, sink: RunSink, session: OutgoingRunEntry, { trace, left }: RunTies): Promise<RunOutcome> {
    const { clock, counters, executor } = this.#deps
    const { requestId } = session
    const input = new RepeatableSpec(spec)
    let lastMachine: MachineId | null = null
    const repeatable: RunSink = {
      ...sink,
      event: (event) => {
        if (event.type === 'started') input.release()
        return sink.event(event)
      },
    }
    let hasWaited = false
    /** A run whose fate is not known, until the target says that it never began. */
    const lost: { run: { readonly outcome: RunOutcome; readonly nonce: Uint8Array } | null } = { run: null }
    const onWait = async (): Promise<void> => {
      if (lost.run !== null) return
      counters.add('requests_denied_for_now')
      lastMachine = session.info.machine_id ?? lastMachine
      session.deniedForNow()
      sink.notSent?.()
      if (!hasWaited) await sink.event({ type: 'warning', request_id: requestId, kind: 'target_draining', message: DRAINING_TEXT })
      hasWaited = true
    }
    const isOwn = spec.agent_id === executor.identity.agentId
    const signal = left === undefined ? session.cancelled : AbortSignal.any([session.cancelled, left])
    const attempt = async (): Promise<RunOutcome> => {
      if (lost.run !== null && !(await this.#isUnseen(lost.run.outcome, lost.run.nonce, signal))) return lost.run.outcome
      lost.run = null
      let nonce: Uint8Array | null = null
      const ties = { trace, left, machineId: lastMachine, onEnded: (run: OutgoingRun) => void (nonce = run.unheardNonce) }
      const outcome = await this.#run(input.again(), repeatable, session, ties)
      if (!hasWaited || !outcome.incomplete || nonce === null || signal.aborted) return outcome
      lost.run = { outcome, nonce }
      throw new AppError('peer_unreachable', 'the target stopped before it answered')
    }
    const isDraining = ({ denial_reason }: RunOutcome): boolean => denial_reason === 'draining' && !isOwn
    const neverArrived = ({ never_arrived }: RunOutcome): boolean => never_arrived === true
    try {
      const answer = untilBack({ clock, signal }, { attempt, isDraining, neverArrived, isGone: isTargetGone, onWait })
      const outcome = await answer.then(
        (last) => lost.run?.outcome ?? last,
        (error: unknown) => {
          if (lost.run === null) throw error
          return lost.run.outcome
        },
      )
      return hasWaited ? { ...outcome, warnings: ['target_draining', ...outcome.warnings] } : outcome
    } finally {
      input.close()
    }
  }

  /** Whether the target certainly never began a run whose Request was lost. Throws dial errors. */
  async #isUnseen({ agent_id, machine_id, request_id }: RunOutcome, request_nonce: Uint8Array, signal: AbortSignal): Promise<boolean> {
    const { clock } = this.#deps
    const transport = await this.#transports.openAt({ agentId: agent_id, machineId: machine_id }, request_id, signal)
    const { promise, resolve, reject } = Promise.withResolvers<boolean>()
    transport.onFrame = (frame) => resolve(frame.type === 'gone' && frame.unseen)
    transport.onClosed = () => reject(new AppError('peer_unreachable', 'the target closed the stream without an answer'))
    try {
      transport.send({ type: 'resume', request_id, stdout: 0, stderr: 0, request_nonce })
      const unseen = await within(clock, EXIT_WAIT_SLACK_MS, promise)
      if (unseen === null) throw new AppError('timeout', 'the target did not answer')
      return unseen
    } finally {
      transport.abort()
    }
  }

  /** Until the Request is sent, a cancellation or a disconnected client makes this throw the signal's reason. */
  async #run(
    spec: RunSpec,
    sink: RunSink,
    session: OutgoingRunEntry,
    { trace, left, machineId, onEnded }: RunTies & { readonly machineId: MachineId | null; onEnded(run: OutgoingRun): void },
  ): Promise<RunOutcome> {
    const { clock, counters, executor } = this.#deps
    const { requestId } = session
    const unsent = left === undefined ? session.cancelled : AbortSignal.any([session.cancelled, left])
    unsent.throwIfAborted()
    reach('asked', requestId)
    const limits = spec.fanout === undefined ? null : this.#fanoutLimits
    const dials = limits !== null && this.#transports.mustDial(spec.agent_id) ? limits.dials : null
    const open = async (): Promise<RunTransport> =>
      machineId === null
        ? this.#transports.open(spec.agent_id, requestId, unsent)
        : this.#transports.openAt({ agentId: spec.agent_id, machineId }, requestId, unsent)
    const transport = await withSlot(dials, unsent, open)
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
        {
          transport,
          reopen,
          clock,
          counters,
          sink,
          session,
          sign,
          signInput: async (call) => executor.signTerminalInput(call),
          onDraining: (exit) => executor.requestDenied(requestId, exit),
        },
        { spec, expected, request, trace: traceFrame(transport.peer, requestId, trace) },
      )
      session.requested(transport.peer.machineId)
      const outcome = await run.run(left)
      onEnded(run)
      return outcome
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
