import { BoundedMap } from '../../base/bounded-collections.ts'
import type { Clock } from '../../base/clock.ts'
import { AppError, isAppError } from '../../base/errors.ts'
import { TokenBucket } from '../../base/rate-limit.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { reach } from '../../base/run-stages.ts'
import { NO_PROOF } from '../../executor-api/messages.ts'
import { newRequestId } from '../../identity/request-id.ts'
import { isOver } from '../../protocol/api/detached-run.ts'
import { type AgentId, type RequestId, toHex } from '../../protocol/ids.ts'
import { ASK_PACE, REATTACH_MS } from '../../protocol/limits/detached.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { TraceContext } from '../../protocol/trace-context.ts'
import type { DetachedAsk } from '../../protocol/wire/detached.ts'
import type { ExecFrame } from '../../protocol/wire/exec.ts'
import { type SignedBody, outcomeOf } from '../exit.ts'
import { untilBack } from '../drain-wait.ts'
import { ReceivedStream } from '../received.ts'
import { type RunOutcome, checkSpec } from '../run-spec.ts'
import { outcomeOfTrace, traceFrame, traced } from '../run-traces.ts'
import type { NetworkServices } from '../services.ts'
import { OWN_LINK, type RunPeer, type RunTransport, Transports, isTargetGone } from '../transport.ts'
import { AttachedRun, AttachedStream, type StreamEnd, hashOf, readExitOf } from './attached-run.ts'
import type { AttachOutcome, DetachedInfo, DetachedSink, DetachedSpec, DetachedTarget } from './detached-types.ts'
import { known, mayRun, refusal, saysNothing, stateOf, wrong, AnswerLost, requestOnce, pause } from './host-replies.ts'

/** Number of agents with a rate limit here. */
const MAX_PACES = 1_024

interface Pace {
  readonly meter: TokenBucket
  /** Queue of the requests, first come, first served. */
  readonly line: Semaphore
}

/** Limits the rate of requests about detached runs, because an agent closes the streams of faster clients. */
export class AskPace {
  readonly #clock: Clock
  readonly #paces = new BoundedMap<AgentId, Pace>({ max: MAX_PACES })

  constructor(components: { readonly clock: Clock }) {
    this.#clock = components.clock
  }

  /** Resolves when one more request to this agent is allowed. Throws the signal's reason. */
  async turn(agentId: AgentId, signal: AbortSignal): Promise<void> {
    const known = this.#paces.get(agentId)
    const pace = known ?? { meter: new TokenBucket({ clock: this.#clock }, ASK_PACE), line: new Semaphore({ limit: 1 }) }
    if (known === undefined) this.#paces.set(agentId, pace)
    await pace.line.use(signal, async () => {
      while (!pace.meter.take()) await pause(this.#clock, 1_000 / ASK_PACE.perSecond, signal)
    })
  }
}

/** Denials after which a run with this request ID may still exist. Any other denial excludes that. */
const HIDES_A_RUN: readonly DenialReason[] = ['unverified_sender', 'trust_rejected', 'request_id_used']
/** A Request without an answer is sent once more. An operator proof is valid for two signatures. */
const STARTS = 2
/** The host names the file and the reason only in its own log. */
const STUCK = 'the log of x0xd on the target names the file and the reason; fix that, then try again'
/** Interval between attempts to reconnect. It doubles each time. */
const FIRST_RETRY_MS = 250
const LAST_RETRY_MS = 5_000

type DetachedClientDeps = Pick<NetworkServices, 'clock' | 'counters' | 'executor' | 'links' | 'traces'>

export type StartedDetached = { readonly target: DetachedTarget } & ({ readonly info: DetachedInfo } | { readonly denied: RunOutcome })

/** Starts detached runs on other agents, which outlive this daemon, and sends requests about them. */
export class DetachedClient {
  readonly #deps: DetachedClientDeps
  readonly #transports: Transports
  readonly #pace: AskPace

  constructor(deps: DetachedClientDeps) {
    this.#deps = deps
    this.#pace = new AskPace(deps)
    this.#transports = new Transports(deps)
  }

  /**
   * Starts a run. `onSigned` is awaited before each Request is sent. Its target suffices for all later requests about the run. A denial is
   * a value. Throws `bad_request`, `rate_limited`, `journal_unavailable`, `operator_proof_required`, `peer_rejected` and dial errors. They
   * have `may_run` in their data if this or an earlier Request may have arrived. Repeating it with the same ID runs it once.
   */
  async start(
    spec: DetachedSpec,
    onSigned: (target: DetachedTarget) => void | Promise<void>,
    signal: AbortSignal,
  ): Promise<StartedDetached> {
    checkSpec(spec)
    const requestId = spec.request_id ?? newRequestId()
    const { clock, executor } = this.#deps
    const isOwn = spec.agent_id === executor.identity.agentId
    const start = async (trace: TraceContext | null): Promise<StartedDetached> =>
      untilBack(
        { clock, signal },
        {
          attempt: async () => this.#start(spec, requestId, trace, onSigned, signal),
          isDraining: (answer) => 'denied' in answer && answer.denied.denial_reason === 'draining' && !isOwn,
          neverArrived: () => false,
          isGone: isTargetGone,
          onWait: () => this.#deps.counters.add('requests_denied_for_now'),
        },
      )
    return traced(this.#deps.traces, { requestId, trace: spec.trace }, start, (answer) =>
      'denied' in answer ? outcomeOfTrace(answer.denied) : { attributes: { 'x0x.outcome': 'begun' }, failed: false },
    )
  }

  async #start(
    spec: DetachedSpec,
    request_id: RequestId,
    trace: TraceContext | null,
    onSigned: (target: DetachedTarget) => void | Promise<void>,
    signal: AbortSignal,
  ): Promise<StartedDetached> {
    reach('asked', request_id)
    const hashes = [...(spec.known_sha256 ?? [])]
    let target: DetachedTarget | null = null
    let sent = false
    for (let attempt = 1; ; attempt += 1) {
      try {
        const transport: RunTransport = await this.#open(target ?? { agent_id: spec.agent_id, machine_id: null }, request_id, signal)
        reach('connected', request_id)
        // On this daemon itself, this process also traces the target's side.
        const here = trace !== null && transport.peer.number === OWN_LINK ? this.#deps.traces : null
        try {
          const question = await this.#sign(transport.peer, spec, request_id, transport.streamNonce)
          hashes.push(hashOf(question.body))
          const { agentId: agent_id, machineId: machine_id } = transport.peer
          target = { agent_id, machine_id, request_id, request_sha256: [...hashes] }
          await onSigned(target)
          sent = true
          const behind = traceFrame(transport.peer, request_id, trace)
          here?.arrived(request_id, true)
          if (trace !== null) here?.joined(request_id, trace)
          const answer = requestOnce(this.#deps.clock, transport, [{ type: 'detach_request', ...question }, behind], signal)
          reach('sent', request_id)
          const frame = await answer
          reach(frame.type === 'exit' ? 'exit_received' : 'begun', request_id)
          if (frame.type === 'detached' && !isOver(frame.state)) here?.outlives(request_id)
          return this.#started(frame, target, transport.peer)
        } finally {
          here?.left(request_id)
          transport.abort()
        }
      } catch (error) {
        if (error instanceof AnswerLost && attempt < STARTS) continue
        // If the ID was requested before, an earlier Request may run. Only a conflict rules that out.
        const wasAsked = (spec.known_sha256 ?? []).length > 0 && !isAppError(error, 'conflict')
        throw sent || wasAsked ? mayRun(error) : error
      }
    }
  }

  /**
   * Shows the output from this offset to its end, each byte once, over any number of connections. The run continues if this fails. Throws
   * `unknown_run`, `bad_request` if less is stored, and `peer_rejected`. Throws `conflict` if too many clients are attached or the host
   * cannot read the output. Throws the errors of the sink, and dial errors after `patience_ms` without a connection.
   */
  async attach(
    target: DetachedTarget,
    from: number,
    sink: DetachedSink,
    signal: AbortSignal,
    { patience_ms = REATTACH_MS }: { readonly patience_ms?: number } = {},
  ): Promise<AttachOutcome> {
    if (!Number.isSafeInteger(from) || from < 0) throw new AppError('bad_request', 'from: expected a whole number of bytes')
    const { clock, executor } = this.#deps
    const run = new AttachedRun({ sink }, { target, from })
    let lostAt = clock.monotonic()
    let wait = FIRST_RETRY_MS
    for (;;) {
      const [before, at, askedAt] = [run.attached, run.next, clock.monotonic()]
      const { end, peer, asked } = await this.#attachOnce(run, target, signal)
      if (run.attached > before) lostAt = clock.monotonic()
      // The interval grows for a host that repeatedly accepts the attach and closes the stream.
      if (run.next > at || clock.monotonic() - askedAt > LAST_RETRY_MS) wait = FIRST_RETRY_MS
      if (end.kind === 'exit') {
        if (run.attached === before) throw refusal(end.frame, { ...target, request_sha256: [asked] }, peer, executor.identity)
        const outcome = run.outcomeOf(end.frame, peer, executor.identity)
        return { info: run.ended(peer), outcome, from, next: run.next }
      }
      if (end.kind === 'state') return { info: stateOf(end.frame, peer), outcome: null, from, next: run.next }
      if (end.kind === 'unreadable') throw new AppError('conflict', 'the target cannot read the stored output', { data: { next: STUCK } })
      if (clock.monotonic() - lostAt + wait > patience_ms) throw lostFor(end.error)
      await pause(clock, wait, signal)
      wait = Math.min(wait * 2, LAST_RETRY_MS)
    }
  }

  /** Returns the state of the run. `unknown` and `expired` are states and not errors. */
  async state(target: DetachedTarget, signal: AbortSignal): Promise<DetachedInfo> {
    return this.#ask(target, 'state', signal)
  }

  /** Requests the end of the run, which may follow after the reply. Throws `unknown_run`. */
  async cancel(target: DetachedTarget, signal: AbortSignal): Promise<DetachedInfo> {
    return known(await this.#ask(target, 'cancel', signal))
  }

  /** Makes the host delete the output and the end of the run. Throws `unknown_run`, and `conflict` while the run continues or if the host cannot delete them. */
  async forget(target: DetachedTarget, signal: AbortSignal): Promise<DetachedInfo> {
    const info = await this.#ask(target, 'forget', signal)
    if (info.state === 'waiting' || info.state === 'running')
      throw new AppError('conflict', 'the run has not ended: cancel it first', { data: { state: info.state } })
    if (info.state === 'ended' || info.state === 'lost')
      throw new AppError('conflict', 'its host cannot remove its output, and keeps it', { data: { state: info.state, next: STUCK } })
    return info.state === 'expired' ? info : known(info)
  }

  async #attachOnce(run: AttachedRun, target: DetachedTarget, signal: AbortSignal): Promise<AttachedOnce> {
    const { clock, counters } = this.#deps
    let transport: RunTransport
    await this.#pace.turn(target.agent_id, signal)
    try {
      transport = await this.#open(target, target.request_id, signal)
    } catch (error) {
      if (signal.aborted || !isLoss(error)) throw error
      return { end: { kind: 'lost', error }, peer: NOBODY, asked: '' }
    }
    const { peer } = transport
    try {
      const question = await this.#signAsk(transport, target.request_id, 'attach', run.next)
      counters.add('detached_asked')
      const stream = new AttachedStream(
        {
          clock,
          transport,
          take: (frame) => run.take(frame, peer),
          show: async (event) => run.show(event),
          greet: async () => run.greet(),
        },
        { requestId: target.request_id },
      )
      return { end: await stream.run({ type: 'detached_ask', ...question }, signal), peer, asked: hashOf(question.body) }
    } finally {
      transport.abort()
    }
  }

  async #ask(target: DetachedTarget, ask: DetachedAsk, signal: AbortSignal): Promise<DetachedInfo> {
    const { clock, counters, executor } = this.#deps
    if (ask !== 'cancel') await this.#pace.turn(target.agent_id, signal)
    const transport = await this.#open(target, target.request_id, signal)
    try {
      const question = await this.#signAsk(transport, target.request_id, ask, 0)
      counters.add('detached_asked')
      const frame = await requestOnce(clock, transport, [{ type: 'detached_ask', ...question }], signal)
      if (frame.type === 'exit')
        throw refusal(frame, { ...target, request_sha256: [hashOf(question.body)] }, transport.peer, executor.identity)
      return stateOf(frame, transport.peer)
    } finally {
      transport.abort()
    }
  }

  async #open(
    to: { readonly agent_id: string; readonly machine_id: string | null },
    requestId: string,
    signal: AbortSignal,
  ): Promise<RunTransport> {
    const { agent_id: agentId, machine_id: machineId } = to
    return machineId === null
      ? this.#transports.open(agentId, requestId, signal)
      : this.#transports.openAt({ agentId, machineId }, requestId, signal)
  }

  async #sign(peer: RunPeer, spec: DetachedSpec, request_id: string, stream_nonce: Uint8Array): Promise<SignedBody> {
    const { argv, cwd, clamp, lifetime_ms, keep_bytes, proof = NO_PROOF } = spec
    const request = { link: peer.number, request_id, stream_nonce, argv: [...argv], cwd, clamp, lifetime_ms, keep_bytes }
    return this.#deps.executor.signDetachRequest({ ...request, ...proof })
  }

  async #signAsk({ peer, streamNonce }: RunTransport, request_id: string, ask: DetachedAsk, from: number): Promise<SignedBody> {
    return this.#deps.executor.signDetachedAsk({ link: peer.number, request_id, stream_nonce: streamNonce, ask, from })
  }

  #started(frame: ExecFrame, target: DetachedTarget, peer: RunPeer): StartedDetached {
    if (frame.type === 'detached') {
      if (!target.request_sha256.includes(toHex(frame.request_sha256)))
        throw new AppError('conflict', 'the target has another run with that ID: use another ID')
      this.#deps.counters.add('runs_detached')
      return { target, info: stateOf(frame, peer) }
    }
    if (frame.type !== 'exit') throw wrong(`unexpected ${frame.type} frame`)
    const read = readExitOf(frame, target, peer, this.#deps.executor.identity)
    if (typeof read === 'string') throw wrong(read)
    const { denial_reason } = read.exit
    if (denial_reason === 'draining') this.#deps.executor.requestDenied(target.request_id, { body: frame.body, signature: frame.signature })
    const wasAsked = target.request_sha256.length > 1
    if (wasAsked && denial_reason !== null && HIDES_A_RUN.includes(denial_reason)) throw saysNothing(denial_reason)
    const received = { stdout: new ReceivedStream(), stderr: new ReceivedStream() }
    const seen = { requestId: target.request_id, peer, received, elapsedMs: 0, warnings: [], waitedMs: null, neverArrived: false }
    return { target, denied: outcomeOf(read.exit, null, seen) }
  }
}

interface AttachedOnce {
  readonly end: StreamEnd
  readonly peer: RunPeer
  /** SHA-256 of the request's bytes, in hex. */
  readonly asked: string
}

/** Placeholder for an attach without a connection. */
const NOBODY: RunPeer = { number: -1, agentId: '', machineId: '', agentPublicKey: new Uint8Array(0) }

const lostFor = (error: Error): AppError =>
  isAppError(error)
    ? error
    : new AppError('peer_unreachable', `the connection to the agent was lost and not restored: ${error.message}`, { cause: error })

const isLoss = (error: unknown): error is AppError => isAppError(error, 'peer_unreachable') || isAppError(error, 'timeout')
