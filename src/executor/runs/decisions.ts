import { BoundedMap } from '../../base/bounded-collections.ts'
import { RateLimit, TokenBucket } from '../../base/rate-limit.ts'
import type { TimeSlice } from '../../base/time-slices.ts'
import {
  type ApprovalNeeded,
  type FilesApprovalNeeded,
  type FilesPermitted,
  type Permitted,
  type Principal,
  authorize,
  senderDenial,
} from '../../policy/mesh/authorize.ts'
import { RuleBook, type TellableRules } from '../../policy/mesh/tellable-rules.ts'
import { type AgentId, type RequestId, pairKey } from '../../protocol/ids.ts'
import { RESTART_WAIT_MS } from '../../protocol/limits/daemon.ts'
import {
  DENIALS_PER_SECOND,
  DENIAL_BURST,
  MAX_RECENT_RUNS,
  ALL_UNACCEPTED_REQUESTS_PER_SECOND,
  ALL_UNACCEPTED_REQUEST_BURST,
} from '../../protocol/limits/wire.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { ExecDetachRequest } from '../../protocol/wire/detached.ts'
import type { SignedStdin } from '../../protocol/wire/exec.ts'
import { type Detached, isSameRun } from '../detached/detached.ts'
import type { DetachedRunRecord } from '../detached/record.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { Nonces } from '../links/nonces.ts'
import type { ExecutorServices } from '../services.ts'
import { Approvals, type ApprovalsDeps, type ApprovalsInit, type UnapprovedRequest, type ApprovalDenial } from './approvals.ts'
import { type Arrival, type RunRequestArrival, type VerifyContext, asksForRun, intentOf, readArrival, senderProblem } from './arrival.ts'
import type { PeerStreamWriter } from './frames.ts'
import type { AnsweredStream, PeerApprovals } from './peer-approvals.ts'
import type { PeerRunInit } from './peer-run.ts'
import type { RunSubject } from './reports.ts'

/** Details for the audit log. */
const SENDER_PROBLEMS = {
  replayed: 'the nonce of its stream was used before, was never issued, or differs from the signed one',
  wrong_party: 'its parties differ from those of the link',
  wrong_signature: 'its signature is wrong',
} as const

/** Requesters look for a lost run no longer than this after a start. */
const KNOWN_AFTER_START_MS = RESTART_WAIT_MS
/** The audit log must cover this time before the start. A Request is under way for some seconds. */
const COVERED_MS = 60_000

interface KnownBefore {
  readonly until: number
  left: number
}
const NOTHING_BEFORE: KnownBefore = { until: 0, left: 0 }

const keyOf = (agentId: AgentId, name: string): string => `${agentId} ${name}`

/** A first frame that arrived on a stream of a link. */
export interface RunArrival {
  readonly link: PeerLink
  readonly nonces: Nonces
  /** Nonce that we issued for the stream. */
  readonly streamNonce: Uint8Array
  readonly frame: Uint8Array
  readonly outlet: PeerStreamWriter
}

/** A run that is permitted or waits for an approval. */
export interface RunAdmission {
  readonly subject: RunSubject
  readonly argv: readonly string[]
  readonly stdin: SignedStdin | null
  readonly admission: PeerRunInit['admission']
  /** Digest of the request if the run is on a terminal, which its input names. Otherwise null. */
  readonly terminal: Uint8Array | null
  /** Record of a detached run, or null if the run ends with its requester. */
  readonly kept: DetachedRunRecord | null
}

export interface DecisionsDeps extends Pick<ExecutorServices, 'clock'>, ApprovalsDeps {
  readonly detached: Detached
  /** Approval requests of other machines for this agent. */
  readonly approvalRequests: PeerApprovals
}

const DRAINING: ApprovalDenial = { reason: 'draining', detail: 'this daemon restarts when its runs have ended' }
const ID_USED: ApprovalDenial = { reason: 'request_id_used', detail: 'this agent and machine used the request id before' }

export interface Denial {
  readonly subject: RunSubject
  readonly reason: DenialReason
  readonly detail: string
}

/** Rules that are sent to a requester. */
export interface RulesAnswer {
  readonly subject: RunSubject
  readonly rules: Promise<TellableRules>
}

/** Not answered. The counter says why. */
export interface Dropped {
  readonly dropped: 'malformed_frames' | 'requests_ignored'
}

/** Key of a run, which consists of pair and request ID. */
export const knownAs = (link: Pick<PeerLink, 'pair'>, requestId: RequestId): string => `${link.pair}:${requestId}`

export class Decisions {
  readonly #deps: DecisionsDeps
  readonly #ruleBook: RuleBook
  readonly #own: VerifyContext['own']
  /**
   * Request IDs that each pair has used, also before this start. A denial before a process began frees the ID. The oldest are forgotten,
   * because a replay already fails on its nonce.
   */
  readonly #used = new BoundedMap<string, true>({ max: MAX_RECENT_RUNS })
  /** How long, and for how many further runs, the IDs from before this start are surely remembered. */
  #knowsBefore: KnownBefore = NOTHING_BEFORE
  /** Limit on denials and rules for each accepted agent. Each costs a signature and a line of the audit log. */
  readonly #answers: RateLimit
  /** The same for all other agents together, because any peer can create another link. */
  readonly #unaccepted: TokenBucket
  readonly #approvals: Approvals

  /** `time` is the share of the event loop for long work. */
  constructor(deps: DecisionsDeps & { readonly time: TimeSlice }, init: ApprovalsInit) {
    this.#deps = deps
    this.#own = init
    this.#ruleBook = new RuleBook(deps)
    this.#answers = new RateLimit(deps, { burst: DENIAL_BURST, perSecond: DENIALS_PER_SECOND })
    this.#unaccepted = new TokenBucket(deps, { burst: ALL_UNACCEPTED_REQUEST_BURST, perSecond: ALL_UNACCEPTED_REQUESTS_PER_SECOND })
    this.#approvals = new Approvals(deps, init)
  }

  /** Loads the IDs of runs that began before this start. If the daemon before had another audit log, they are not all. */
  async load(isSameLog: boolean): Promise<void> {
    const { clock, reports } = this.#deps
    const { runs, since } = await reports.lastBegun()
    for (const { agent_id, machine_id, request_id } of runs)
      this.#use(agent_id, knownAs({ pair: pairKey({ agent_id, machine_id }) }, request_id))
    const isCovered = isSameLog && since <= clock.now() - COVERED_MS
    this.#knowsBefore = isCovered ? { until: clock.monotonic() + KNOWN_AFTER_START_MS, left: MAX_RECENT_RUNS / 2 } : NOTHING_BEFORE
  }

  /**
   * Whether all IDs are known under which runs began shortly before this start, because the audit log has them. True for a while after a
   * start, for Requests that were under way. Their nonces died with the earlier process.
   */
  get knowsBefore(): boolean {
    const { until, left } = this.#knowsBefore
    return left > 0 && this.#deps.clock.monotonic() < until
  }

  hasUsed(agentId: AgentId, name: string): boolean {
    return this.#used.has(keyOf(agentId, name))
  }

  /** The run was denied before a process began, so its ID can be used again. */
  release(agentId: AgentId, name: string): void {
    this.#used.delete(keyOf(agentId, name))
  }

  /**
   * `isFull` means that no more requests can be answered now. `isDraining` means that no new run may begin. `isKnown` means that a run of
   * this name exists.
   */
  decide(
    arrival: RunArrival,
    { isFull, isDraining, isKnown }: { isFull: boolean; isDraining: boolean; isKnown(name: string): boolean },
  ): RunAdmission | AnsweredStream | Denial | RulesAnswer | Dropped {
    const { counters, detached, trustEvaluator } = this.#deps
    const { link } = arrival
    const trust = trustEvaluator.decide(link.agentId, link.machineId)
    if (trust !== 'accept' && !(link.unacceptedRequests.take() && this.#unaccepted.take())) return { dropped: 'requests_ignored' }
    const read = readArrival(arrival.frame)
    if (read === null) return { dropped: 'malformed_frames' }
    // Requests about detached runs have their own limits, so that an owner can end its runs at any load.
    if (isFull && read.asks !== 'detached') return { dropped: 'requests_ignored' }
    if (!asksForRun(read) && trust === 'accept' && !this.#mayAsk(read, link.agentId)) {
      arrival.nonces.consume(link.pair, arrival.streamNonce)
      return { dropped: 'requests_ignored' }
    }
    const { request_id } = read.request
    const name = knownAs(link, request_id)
    const problem = senderProblem(read, { ...arrival, own: this.#own })
    if (problem === 'replayed') counters.count('requests_replayed')
    const { agentId: agent_id, machineId: machine_id } = link
    const key = { agent_id, machine_id, request_id }
    const who = { name: trustEvaluator.nameOf(agent_id), formerly: trustEvaluator.formerlyOf(agent_id) }
    const principal: Principal = { kind: 'mesh', agent_id, machine_id, verified: problem === null, trust, ...who }
    if (read.asks === 'rules') return this.#decideRules({ key, argv: [], requestSha256: read.sha256 }, principal)
    if (read.asks === 'approval' || read.asks === 'detached')
      return this.#decideAsk({ key, argv: [], requestSha256: read.sha256 }, principal, read, arrival)
    if (senderDenial(principal) === null) {
      const found = detached.find(link, request_id)
      // A run that was denied before a process began, for example without an answer of an approver, leaves its ID free.
      const kept = found?.isDenied === true ? null : found
      if (kept !== null && read.asks === 'detach' && isSameRun(kept, read.request)) return detached.answer(kept, arrival.outlet)
      if (isKnown(name) || this.hasUsed(agent_id, name) || kept !== null) {
        counters.count('requests_replayed')
        return this.#refused({ key, argv: read.request.argv, requestSha256: read.sha256 }, ID_USED)
      }
      // It takes no token of the rate limit, because the requester made no mistake.
      if (isDraining) return { subject: { key, argv: read.request.argv, requestSha256: read.sha256 }, ...DRAINING }
    }
    const decided = this.#decideRun(read, principal, arrival, problem === null ? null : SENDER_PROBLEMS[problem])
    // In the same turn, so that only one of two Requests with the same ID can begin.
    if ('admission' in decided) this.#use(agent_id, name)
    return decided
  }

  /** Marks the ID as used, so that it never means another run. */
  #use(agentId: AgentId, name: string): void {
    this.#used.set(keyOf(agentId, name), true, agentId)
    this.#knowsBefore.left -= 1
  }

  /** An answer costs a signature and a log line, like a denial. So requests above the limit are not verified. */
  #mayAsk(read: Arrival, agentId: AgentId): boolean {
    return read.asks === 'detached' ? this.#deps.detached.mayAsk(agentId, read.request) : this.#answers.allows(agentId)
  }

  #decideRun(read: RunRequestArrival, principal: Principal, { link }: RunArrival, problem: string | null): RunAdmission | Denial | Dropped {
    const { agent_id, machine_id, trust } = principal
    const { request } = read
    const subject: RunSubject = {
      key: { agent_id, machine_id, request_id: request.request_id },
      argv: request.argv,
      requestSha256: read.sha256,
    }
    const { intent, stdin } = intentOf(read)
    const verdict = authorize(intent, principal, this.#deps.policy)
    if (verdict.kind === 'denied') {
      if (trust === 'accept' && !this.#mayDeny(agent_id, verdict.reason)) return { dropped: 'requests_ignored' }
      return { subject, reason: verdict.reason, detail: problem ?? verdict.detail }
    }
    const asked = { subject, intent, link, stdin }
    const { argv } = request
    if (read.asks !== 'detach' || verdict.kind === 'files' || verdict.place === null) {
      const admission = this.#admissionOf(verdict, asked)
      const terminal = read.asks === 'terminal' ? read.sha256 : null
      return 'detail' in admission ? this.#refused(subject, admission) : { subject, argv, stdin, terminal, admission, kept: null }
    }
    const begun = this.#detach(verdict, asked, read.request)
    return 'detail' in begun ? this.#refused(subject, begun) : { subject, argv, stdin, terminal: null, ...begun }
  }

  #refused(subject: RunSubject, why: ApprovalDenial): Denial | Dropped {
    return this.#answers.allows(subject.key.agent_id) ? { subject, ...why } : { dropped: 'requests_ignored' }
  }

  /** Takes a place among detached runs, then those of any run. */
  #detach(
    verdict: Permitted | ApprovalNeeded,
    asked: Omit<UnapprovedRequest, 'question'>,
    request: ExecDetachRequest,
  ): Pick<RunAdmission, 'kept' | 'admission'> | ApprovalDenial {
    const { detached } = this.#deps
    const kept = detached.admit(asked.subject, request, verdict)
    if (typeof kept === 'string') {
      if (verdict.kind === 'permit') verdict.slot.release()
      return { reason: 'concurrency_limit_reached', detail: kept }
    }
    const admission = this.#admissionOf(verdict, asked)
    if ('detail' in admission) {
      detached.release(kept)
      return admission
    }
    return { kept, admission }
  }

  #admissionOf(
    verdict: Permitted | ApprovalNeeded | FilesApprovalNeeded | FilesPermitted,
    request: Omit<UnapprovedRequest, 'question'>,
  ): PeerRunInit['admission'] | ApprovalDenial {
    if (verdict.kind === 'ask') return this.#approvals.admit({ ...request, question: verdict.question })
    return { ...verdict, report: this.#deps.reports.of(request.subject, verdict.permit, request.stdin) }
  }

  #decideRules(subject: RunSubject, principal: Principal): Denial | RulesAnswer {
    const rules = this.#ruleBook.rulesOf(principal)
    if ('reason' in rules) return { subject, reason: rules.reason, detail: `it asked which commands it may run; ${rules.detail}` }
    return { subject, rules }
  }

  #decideAsk(
    subject: RunSubject,
    principal: Principal,
    read: Extract<Arrival, { asks: 'approval' | 'detached' }>,
    { link, outlet }: RunArrival,
  ): AnsweredStream | Denial {
    const { detached, approvalRequests } = this.#deps
    const denial = senderDenial(principal)
    if (denial !== null) return { subject, ...denial }
    if (read.asks === 'detached') return detached.ask({ subject, request: read.request, link, outlet })
    const answer = approvalRequests.admit({ subject, request: read.request, link, outlet })
    return 'reason' in answer ? { subject, ...answer } : answer
  }

  /** `concurrency_limit_reached` takes no token, because the requester made no mistake. */
  #mayDeny(agentId: AgentId, reason: DenialReason): boolean {
    return reason === 'concurrency_limit_reached' || this.#answers.allows(agentId)
  }
}
