import { RetentionPool } from '../../base/bounded-collections.ts'
import { within } from '../../base/clock.ts'
import { AppError, errorText } from '../../base/errors.ts'
import { TimeSlicer } from '../../base/time-slices.ts'
import type { RunKey } from '../../journal/run-key.ts'
import type { Acl } from '../../policy/mesh/acl.ts'
import { isListed } from '../../policy/mesh/authorize.ts'
import { HERE } from '../../protocol/events/lifecycle.ts'
import type { RunReporter } from '../../protocol/events/run-reporter.ts'
import { type AgentId, type RequestId, pairKey } from '../../protocol/ids.ts'
import { MAX_PORT_RUNS, MAX_RUNS_PER_PEER, MAX_UNACKED_TOTAL, SHUTDOWN_EXITS_MS, SHUTDOWN_KILL_MS } from '../../protocol/limits/wire.ts'
import { execFrame } from '../../protocol/wire/exec.ts'
import { OWN_LINK, type PeerLink } from '../links/executor-links.ts'
import type { TrustEvaluator } from '../links/trust-evaluator.ts'
import type { LiveRunFeed } from '../live-run-feed.ts'
import type { ExecutorServices } from '../services.ts'
import type { ApprovalsInit } from './approvals.ts'
import { readResume } from './arrival.ts'
import { type Denial, type RulesAnswer, type RunAdmission, Decisions, type DecisionsDeps, type RunArrival, knownAs } from './decisions.ts'
import type { EndCause } from './execution.ts'
import type { PeerStreamWriter } from './frames.ts'
import type { Carried } from './peer-approvals.ts'
import { PeerRun } from './peer-run.ts'
import { RequesterStream, type RequesterStreamDeps } from './requester-stream.ts'

/** A request that is being answered, denied or run. */
export interface Active {
  readonly link: PeerLink
  readonly run: Pick<PeerRun, 'end' | 'kill'> | null
  /** Null if no command of the ACL runs. */
  readonly command: ActiveCommand | null
}

export interface ActiveCommand {
  readonly argv: readonly string[]
  readonly run: Pick<PeerRun, 'requestId' | 'state' | 'end' | 'recorded'>
  /** Wall-clock time of the request. */
  readonly since: number
  /** The run outlives its requester. */
  readonly detached: boolean
  readonly terminal: boolean
}

/** Requests that are being answered. */
export class ActiveRuns {
  readonly #active = new Map<Active, Promise<void>>()

  get all(): readonly Active[] {
    return [...this.#active.keys()]
  }

  track(active: Active, work: Promise<void>): void {
    this.#active.set(
      active,
      work.finally(() => this.#active.delete(active)),
    )
  }

  isFullFor(link: PeerLink): boolean {
    if (this.#active.size >= MAX_PORT_RUNS) return true
    if (this.#active.size < MAX_RUNS_PER_PEER || link.number === OWN_LINK) return false
    return this.all.filter((active) => active.link.agentId === link.agentId).length >= MAX_RUNS_PER_PEER
  }

  /** Ends the runs of agents that are no longer accepted, connected or not. */
  accessChanged(trustEvaluator: TrustEvaluator): void {
    for (const { link, run } of this.#active.keys())
      if (run !== null && trustEvaluator.decide(link.agentId, link.machineId) !== 'accept') run.end('access_revoked')
  }

  /** Ends runs that this ACL does not list, waiting ones too. Returns their number. */
  aclNarrowed(acl: Acl): number {
    const gone = this.all.filter(
      ({ link, command }) => command !== null && !isListed({ ...command, recorded: command.run.recorded }, link, acl),
    )
    for (const { run } of gone) run?.end('access_revoked')
    return gone.length
  }

  end(cause: EndCause): void {
    for (const { run } of this.#active.keys()) run?.end(cause)
  }

  kill(): void {
    for (const { run } of this.#active.keys()) run?.kill()
  }

  async settled(): Promise<void> {
    await Promise.all(this.#active.values())
  }
}

/**
 * Ended runs whose Exit is stored for their requester. The owner is an agent, because an agent may have any number of machines. They share
 * 50 % of the bytes that all runs may store, and active runs share the rest.
 */
export const AWAITING_ACK = { count: 1_024, bytes: MAX_UNACKED_TOTAL / 2, countPerOwner: 64 } as const

export interface RunsDeps extends Pick<ExecutorServices, 'clock' | 'counters'>, DecisionsDeps, RequesterStreamDeps {
  /** Null if no approval client can watch. */
  readonly watch: LiveRunFeed | null
}

/** Handles all requests of all peers. Denies each, or runs it to its end. */
export class Runs {
  readonly #deps: RunsDeps
  readonly #active = new ActiveRuns()
  /** Runs that a requester can still resume, by pair and request ID. */
  readonly #known = new Map<string, RequesterStream>()
  /** Runs that were denied before a process began. Their IDs are free while their Exits are still stored. */
  readonly #denied = new WeakSet<RequesterStream>()
  readonly #lingering = new RetentionPool(AWAITING_ACK)
  readonly #decisions: Decisions
  readonly #stopping = new AbortController()
  #isDraining = false

  constructor(deps: RunsDeps, init: ApprovalsInit) {
    this.#deps = deps
    const time = new TimeSlicer(deps).share(this.#stopping.signal)
    this.#decisions = new Decisions({ ...deps, time }, init)
    deps.reports.onNeverBegan = (key) => this.#onNeverBegan(key)
  }

  /** As `Decisions.load`. */
  async load(isSameLog: boolean): Promise<void> {
    await this.#decisions.load(isSameLog)
  }

  /** Returns the run, or null. Then the outlet carries the reason or only closes. */
  open(arrival: RunArrival): Carried | null {
    const { counters } = this.#deps
    const { link, outlet } = arrival
    counters.count('requests_received')
    const isFull = this.#active.isFullFor(link)
    const isDraining = this.#isDraining || this.#stopping.signal.aborted
    const verdict = this.#decisions.decide(arrival, { isFull, isDraining, isKnown: (name) => this.#isKnown(name) })
    if ('admission' in verdict) return this.#start(verdict, arrival)
    if ('stream' in verdict) {
      this.#active.track({ link, run: verdict.stream, command: null }, verdict.answered)
      if (this.#stopping.signal.aborted) verdict.stream.end('daemon_stopping')
      return verdict.stream
    }
    if ('dropped' in verdict) {
      counters.count(verdict.dropped)
      outlet.close()
      return null
    }
    this.#active.track({ link, run: null, command: null }, this.#answer(verdict, outlet))
    return null
  }

  /**
   * Returns the resumed run, or null. Then `gone` is sent for an unknown run, a run of another pair, or a used nonce. It also says whether
   * the Request certainly never arrived. It is refused from then on. A peer that is not accepted gets no answer.
   */
  resume(arrival: RunArrival): Carried | null {
    const { counters, trustEvaluator } = this.#deps
    const { link, nonces, streamNonce, outlet } = arrival
    const fresh = nonces.consume(link.pair, streamNonce)
    const frame = readResume(arrival.frame)
    const accepted = frame !== null && trustEvaluator.decide(link.agentId, link.machineId) === 'accept'
    const run = accepted && fresh ? this.#known.get(knownAs(link, frame.request_id)) : undefined
    if (accepted && run?.resume(outlet, frame) === true) {
      counters.count('runs_resumed')
      return run
    }
    counters.count(frame === null ? 'malformed_frames' : 'resumes_refused')
    if (accepted) {
      const { request_id, request_nonce } = frame
      const name = knownAs(link, request_id)
      const isVoid = nonces.void(link.pair, request_nonce)
      const isKnown = isVoid || (nonces.isOfOther(request_nonce) && this.#decisions.knowsBefore)
      const unseen = fresh && isKnown && !this.#decisions.hasUsed(link.agentId, name)
      outlet.send(execFrame.encode({ type: 'gone', request_id, unseen }))
    }
    outlet.close()
    return null
  }

  get active(): readonly Active[] {
    return this.#active.all
  }

  /** Contacts or revocations have changed. */
  accessChanged(): void {
    this.#active.accessChanged(this.#deps.trustEvaluator)
  }

  /** A narrower ACL is in force. Returns how many runs it ends. */
  aclNarrowed(): number {
    const { acl, slots } = this.#deps.policy
    slots.limit(acl.caps)
    return this.#active.aclNarrowed(acl)
  }

  get isDraining(): boolean {
    return this.#isDraining
  }

  /** While true, new requests are denied with `draining`, and so is each run that waits for an approval. Its requester asks again. */
  drain(isDraining: boolean): void {
    this.#isDraining = isDraining
    if (!isDraining) return
    for (const { command } of this.#active.all) if (command?.run.state === 'waiting_for_approval') command.run.end('daemon_stopping')
  }

  /** Ends every program by SIGTERM at once, and by SIGKILL in time for SHUTDOWN_MS. Resolves when all are over and their Exits were taken. */
  async stop(): Promise<void> {
    const { clock } = this.#deps
    this.#stopping.abort(new AppError('shutting_down', 'the daemon is stopping'))
    this.#active.end('daemon_stopping')
    const timer = clock.setTimeout(() => this.#active.kill(), SHUTDOWN_KILL_MS)
    await this.#active.settled()
    timer.cancel()
    const untaken = [...this.#known.values()].filter(({ awaitsAck }) => awaitsAck)
    if (untaken.length > 0) await within(clock, SHUTDOWN_EXITS_MS, Promise.all(untaken.map(async (stream) => stream.taken())))
    for (const run of this.#known.values()) run.dismiss()
  }

  #start({ subject, argv, stdin, terminal, admission, kept }: RunAdmission, { link, outlet }: RunArrival): Carried {
    const { clock, detached } = this.#deps
    const { request_id: requestId } = subject.key
    let onWatched = (): void => undefined
    const init = { requestId, admission, reporter: this.#reporterOf(link, requestId, () => onWatched()) }
    const since = clock.now()
    if (kept !== null) {
      const run = new PeerRun(this.#deps, { ...init, output: kept, stdin: null })
      this.#active.track({ link, run, command: { argv, run, since, detached: true, terminal: false } }, detached.execute(run, kept, outlet))
      return detached.streamOf(outlet)
    }
    const key = knownAs(link, requestId)
    const onForgotten = (): void => {
      if (this.#known.get(key) === stream) this.#known.delete(key)
      this.#lingering.delete(stream)
    }
    const input = terminal && { publicKey: link.agentPublicKey, requestSha256: terminal }
    const resumable = link.number !== OWN_LINK
    const stream = new RequesterStream(this.#deps, { ...init, stdin, terminal: input, outlet, resumable, onForgotten })
    this.#known.set(key, stream)
    const { run } = stream
    onWatched = () => run.watched()
    const command = { argv, run, since, detached: false, terminal: terminal !== null }
    this.#active.track({ link, run, command }, this.#execute(link.agentId, stream))
    return stream
  }

  #isKnown(name: string): boolean {
    const run = this.#known.get(name)
    return run !== undefined && !this.#denied.has(run)
  }

  #onNeverBegan({ agent_id, machine_id, request_id }: RunKey): void {
    const name = knownAs({ pair: pairKey({ agent_id, machine_id }) }, request_id)
    this.#decisions.release(agent_id, name)
    const run = this.#known.get(name)
    if (run !== undefined) this.#denied.add(run)
  }

  async #execute(agentId: AgentId, stream: RequesterStream): Promise<void> {
    await stream.run.execute()
    if (stream.awaitsAck) this.#lingering.add(agentId, stream)
  }

  async #answer(answer: Denial | RulesAnswer, outlet: PeerStreamWriter): Promise<void> {
    const { log, reports } = this.#deps
    const { subject } = answer
    try {
      const frame =
        'rules' in answer ? reports.answerRules(subject, await answer.rules) : reports.denied(subject, answer.reason, answer.detail)
      outlet.send(await frame)
    } catch (error) {
      log.error({ request_id: subject.key.request_id, error: errorText(error) }, 'a request could not be answered')
    } finally {
      outlet.close()
    }
  }

  /** Null if no approval client can watch, or the requester is this agent. */
  #reporterOf(link: PeerLink, run_id: RequestId, onFollowed: () => void): RunReporter | null {
    if (link.number === OWN_LINK) return null
    return this.#deps.watch?.reporter({ owner: link.agentId, session: null, door: 'mesh', run_id, node: HERE }, onFollowed) ?? null
  }
}
