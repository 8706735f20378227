import type { Clock } from '../../base/clock.ts'
import { Keeping } from '../../base/keeping.ts'
import { AppError, errorText } from '../../base/errors.ts'
import { TimeSharing } from '../../base/time-sharing.ts'
import type { Logger } from '../../base/log.ts'
import type { ExecCounters } from '../../diagnostics/exec-counters.ts'
import {
  authorize,
  isListed,
  senderDenial,
  type Asked,
  type Permitted,
  type PolicyContext,
  type Principal,
} from '../../policy/mesh/authorize.ts'
import { RuleBook } from '../../policy/mesh/tellable-rules.ts'
import type { DeskLink } from '../../desk/desk-link.ts'
import type { CellSource } from '../../process/cells.ts'
import type { Guardian } from '../../process/guardian.ts'
import { execFrame } from '../../protocol/exec.ts'
import type { AgentId, MachineId, RequestId } from '../../protocol/ids.ts'
import { MAX_PORT_RUNS, MAX_RUNS_PER_PEER, MAX_UNACKED_TOTAL, SHUTDOWN_KILL_MS } from '../../protocol/limits.ts'
import { HERE } from '../../protocol/lifecycle.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { RunWatch } from '../run-watch.ts'
import { AnswerMeters } from './answer-meters.ts'
import type { ApproverAsks } from './approver-asks.ts'
import type { Active, Denial, Dropped, Told } from './answers.ts'
import { Approvals, type AskedRun, type NotAllowed } from './approvals.ts'
import { readArrival, readResume, type Arrival } from './arrival.ts'
import { OWN_LINK, type PeerLink } from '../links/links.ts'
import type { Nonces } from '../links/nonces.ts'
import { SENDER_PROBLEMS, Senders } from './senders.ts'
import { stdinDigest } from './run-facts.ts'
import type { UnackedTotal } from './outbox.ts'
import type { AdmittedQuestion, Carried, PeerQuestions } from './peer-questions.ts'
import type { Reports, RunSubject } from './reports.ts'
import { Run, type RunInit } from './run.ts'
import type { RunOutlet } from './outlet.ts'
import type { TrustJudge } from '../links/trust-judge.ts'

/**
 * Runs that have ended and whose Exit is kept until their requester has it. An owner is an agent, since that may have
 * as many machines as it likes. `bytes` of them all are half of what all runs may keep: those that run have the other half.
 */
export const LINGERING = { count: 1_024, bytes: MAX_UNACKED_TOTAL / 2, countPerOwner: 64 } as const

/** What all runs of an executor share. */
export interface RunsComponents {
  /** Of runs that wait here, for the approval of others. */
  readonly approvers: ApproverAsks
  readonly cells: CellSource
  readonly clock: Clock
  readonly counters: ExecCounters
  /** Null: nobody can be asked. */
  readonly desk: DeskLink | null
  readonly guardian: Guardian
  readonly judge: TrustJudge
  readonly log: Logger
  readonly policy: PolicyContext
  /** Of other hosts, for this agent's approval. */
  readonly questions: PeerQuestions
  readonly reports: Reports
  readonly total: UnackedTotal
  /** Null: nobody watches over this host. */
  readonly watch: RunWatch | null
}

export interface RunsInit {
  readonly agentId: AgentId
  readonly machineId: MachineId
  /** As of `ApprovalsInit`. */
  readonly askTimeoutMs?: number | undefined
}

/** A Request, a question for rules, or a Resume, that came on a stream of a link. */
export interface RunArrival {
  readonly link: PeerLink
  readonly nonces: Nonces
  /** Ours, of that stream. */
  readonly streamNonce: Uint8Array
  readonly frame: Uint8Array
  readonly outlet: RunOutlet
}

/** All requests of all peers: denies each, or runs it to its end. */
export class Runs {
  readonly #components: RunsComponents
  readonly #active = new Map<Active, Promise<void>>()
  /** Every run that its requester may still ask for, by pair and request id. */
  readonly #known = new Map<string, Run>()
  readonly #lingering = new Keeping(LINGERING)
  readonly #ruleBook: RuleBook
  readonly #senders: Senders
  readonly #meters: AnswerMeters
  readonly #approvals: Approvals
  readonly #stopping = new AbortController()

  constructor(components: RunsComponents, init: RunsInit) {
    this.#components = components
    this.#senders = new Senders(components, init)
    const time = new TimeSharing(components).share(this.#stopping.signal)
    this.#ruleBook = new RuleBook({ policy: components.policy, time })
    this.#meters = new AnswerMeters(components)
    this.#approvals = new Approvals(components, init)
  }

  /** The run that came of it, or null where none did: then the outlet says why, or just closes. */
  open(arrival: RunArrival): Carried | null {
    const { clock, counters } = this.#components
    const { link, outlet } = arrival
    counters.count('requests_received')
    const verdict = this.#decide(arrival)
    if ('run' in verdict) {
      const { run, argv } = verdict
      this.#track({ link, run, command: { argv, run, since: clock.now() } }, this.#execute(link.agentId, run))
      return run
    }
    if ('question' in verdict) {
      this.#track({ link, run: verdict.question, command: null }, verdict.answered)
      return verdict.question
    }
    if ('dropped' in verdict) {
      counters.count(verdict.dropped)
      outlet.close()
      return null
    }
    this.#track({ link, run: null, command: null }, this.#answer(verdict, outlet))
    return null
  }

  /**
   * The run that goes on, or null: then the outlet says `gone`, whether there is no such run, it is another
   * pair's, or the stream's nonce was used before; and whether its Request was certainly never taken, which
   * is refused from then on. Who is not accepted gets no answer.
   */
  resume(arrival: RunArrival): Run | null {
    const { counters, judge } = this.#components
    const { link, nonces, streamNonce, outlet } = arrival
    const fresh = nonces.consume(link.pair, streamNonce)
    const frame = readResume(arrival.frame)
    const accepted = frame !== null && judge.decide(link.agentId, link.machineId) === 'accept'
    const run = accepted && fresh ? this.#known.get(knownAs(link, frame.request_id)) : undefined
    if (accepted && run?.resume(outlet, frame, link) === true) {
      counters.count('runs_resumed')
      return run
    }
    counters.count(frame === null ? 'malformed_frames' : 'resumes_refused')
    if (accepted) {
      const { request_id, request_nonce } = frame
      const unseen = fresh && !this.#senders.hasUsed(knownAs(link, request_id)) && nonces.void(link.pair, request_nonce)
      outlet.send(execFrame.encode({ type: 'gone', request_id, unseen }))
    }
    outlet.close()
    return null
  }

  /** What is being answered, the oldest first. */
  get active(): readonly Active[] {
    return [...this.#active.keys()]
  }

  /** Contacts or revocations have changed: whoever is not accepted any more loses its runs, connected or not. */
  accessChanged(): void {
    for (const { link, run } of this.#active.keys())
      if (run !== null && this.#components.judge.decide(link.agentId, link.machineId) !== 'accept') run.end('access_revoked')
  }

  /** Another ACL is in force: what it has no longer ends, and waits no longer. Answers how many. */
  aclNarrowed(): number {
    const { acl, slots } = this.#components.policy
    slots.limit(acl.caps)
    const gone = [...this.#active.keys()].filter(({ link, command }) => command !== null && !isListed(command.argv, link, acl))
    for (const { run } of gone) run?.end('access_revoked')
    return gone.length
  }

  /** Ends every program, and answers when all are over: SIGTERM at once, SIGKILL in time for SHUTDOWN_MS. */
  async stop(): Promise<void> {
    this.#stopping.abort(new AppError('shutting_down', 'the daemon is stopping'))
    for (const { run } of this.#active.keys()) run?.end('daemon_stopping')
    const timer = this.#components.clock.setTimeout(() => {
      for (const { run } of this.#active.keys()) run?.kill()
    }, SHUTDOWN_KILL_MS)
    await Promise.all(this.#active.values())
    timer.cancel()
    for (const run of this.#known.values()) run.dismiss()
  }

  async #execute(agentId: AgentId, run: Run): Promise<void> {
    await run.execute()
    if (run.lingers) this.#lingering.add(agentId, run)
  }

  #track(active: Active, work: Promise<void>): void {
    this.#active.set(
      active,
      work.finally(() => this.#active.delete(active)),
    )
  }

  async #answer(answer: Denial | Told, outlet: RunOutlet): Promise<void> {
    const { log, reports } = this.#components
    const { subject } = answer
    try {
      const frame = 'rules' in answer ? reports.told(subject, await answer.rules) : reports.denied(subject, answer.reason, answer.detail)
      outlet.send(await frame)
    } catch (error) {
      log.error({ request_id: subject.key.request_id, error: errorText(error) }, 'a request could not be answered')
    } finally {
      outlet.close()
    }
  }

  #decide(arrival: RunArrival): { run: Run; argv: readonly string[] } | AdmittedQuestion | Denial | Told | Dropped {
    const { judge, policy } = this.#components
    const { link } = arrival
    if (this.#stopping.signal.aborted || this.#isFullFor(link)) return { dropped: 'requests_ignored' }
    const trust = judge.decide(link.agentId, link.machineId)
    if (trust !== 'accept' && !this.#meters.admitsStranger(link)) return { dropped: 'requests_ignored' }
    const read = readArrival(arrival.frame)
    if (read === null) return { dropped: 'malformed_frames' }
    // Each answer costs a signature and a line of the journal, as a denial does: no more is verified than may be answered.
    if (read.asks !== 'run' && trust === 'accept' && !this.#meters.admits(link.agentId)) {
      arrival.nonces.consume(link.pair, arrival.streamNonce)
      return { dropped: 'requests_ignored' }
    }
    const name = knownAs(link, read.request.request_id)
    const problem = this.#senders.problemOf(read, arrival, { name, trusted: trust === 'accept', isTaken: this.#known.has(name) })
    const { agentId: agent_id, machineId: machine_id } = link
    const key = { agent_id, machine_id, request_id: read.request.request_id }
    const who = { name: judge.nameOf(agent_id), formerly: judge.formerlyOf(agent_id) }
    const principal: Principal = { kind: 'mesh', agent_id, machine_id, verified: problem === null, trust, ...who }
    if (read.asks === 'rules') return this.#decideRules({ key, argv: [], requestSha256: read.sha256 }, principal)
    if (read.asks === 'approval') return this.#decideApproval({ key, argv: [], requestSha256: read.sha256 }, principal, read, arrival)
    const { request } = read
    const subject: RunSubject = { key, argv: request.argv, requestSha256: read.sha256 }
    const { argv, cwd, timeout_ms, clamp } = request
    const stdin_sha256 = stdinDigest(request.stdin?.pieces ?? [])
    const intent = { argv, cwd, stdin_len: request.stdin?.len ?? null, stdin_sha256, timeout_ms, clamp }
    const verdict = authorize(intent, principal, policy)
    if (verdict.kind === 'denied') {
      if (trust === 'accept' && !this.#mayDeny(agent_id, verdict.reason)) return { dropped: 'requests_ignored' }
      return { subject, reason: verdict.reason, detail: problem === null ? verdict.detail : SENDER_PROBLEMS[problem] }
    }
    const { request_id: requestId, stdin } = request
    const admission = this.#admissionOf(verdict, { subject, intent, link, stdin })
    if (!('detail' in admission)) return { run: this.#makeRun({ requestId, stdin, admission, outlet: arrival.outlet }, link), argv }
    return this.#meters.admits(agent_id) ? { subject, ...admission } : { dropped: 'requests_ignored' }
  }

  #admissionOf(verdict: Permitted | Asked, request: Omit<AskedRun, 'question'>): RunInit['admission'] | NotAllowed {
    if (verdict.kind === 'ask') return this.#approvals.admit({ ...request, question: verdict.question })
    return { ...verdict, report: this.#components.reports.of(request.subject, verdict.permit, request.stdin) }
  }

  #decideRules(subject: RunSubject, principal: Principal): Denial | Told {
    const rules = this.#ruleBook.rulesOf(principal)
    if ('reason' in rules) return { subject, reason: rules.reason, detail: `it asked which commands it may run; ${rules.detail}` }
    return { subject, rules }
  }

  #decideApproval(
    subject: RunSubject,
    principal: Principal,
    { request }: Extract<Arrival, { asks: 'approval' }>,
    { link, outlet }: RunArrival,
  ): AdmittedQuestion | Denial {
    const denial = senderDenial(principal)
    const answer = denial ?? this.#components.questions.admit({ subject, request, link, outlet })
    return 'reason' in answer ? { subject, ...answer } : answer
  }

  #makeRun(init: Omit<RunInit, 'story' | 'resumable' | 'peer' | 'onForgotten'>, link: PeerLink): Run {
    const key = knownAs(link, init.requestId)
    const onForgotten = (): void => {
      this.#known.delete(key)
      this.#lingering.delete(run)
    }
    const resumable = link.number !== OWN_LINK
    const about = { owner: link.agentId, session: null, door: 'mesh', run_id: init.requestId, node: HERE } as const
    const story = resumable ? (this.#components.watch?.story(about) ?? null) : null
    const run = new Run(this.#components, { ...init, story, resumable, peer: link, onForgotten })
    this.#known.set(key, run)
    return run
  }

  /** A denial for `concurrency_limit_reached` takes no token: the requester did nothing wrong. */
  #mayDeny(agentId: AgentId, reason: DenialReason): boolean {
    return reason === 'concurrency_limit_reached' || this.#meters.admits(agentId)
  }

  #isFullFor(link: PeerLink): boolean {
    if (this.#active.size >= MAX_PORT_RUNS) return true
    if (this.#active.size < MAX_RUNS_PER_PEER || link.number === OWN_LINK) return false
    return [...this.#active.keys()].filter((active) => active.link.pair === link.pair).length >= MAX_RUNS_PER_PEER
  }
}

const knownAs = (link: PeerLink, requestId: RequestId): string => `${link.pair}:${requestId}`
