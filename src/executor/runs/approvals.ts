import { unlessAborted } from '../../base/abort.ts'
import { AppError, errorText, isAppError } from '../../base/errors.ts'
import { type Approval, type ApprovalRequest, SpentAnswers } from '../../policy/approval/approval.ts'
import type { AgentsApproval } from '../../policy/approval/statements.ts'
import { type ApprovalNeeded, type Verdict, authorize } from '../../policy/mesh/authorize.ts'
import type { Intent } from '../../policy/mesh/intent.ts'
import { unallowable, withStdin } from '../../protocol/desk/approval-request-size.ts'
import { ASK_TIMEOUT_MS, MAX_APPROVAL_WAIT_MS, MAX_SHOWN_STDIN } from '../../protocol/limits/approvals.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { ExecRequest } from '../../protocol/wire/exec.ts'
import { askApprovalService } from '../ask-approval-service.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { OwnIds } from '../links/trust-evaluator.ts'
import type { ExecutorServices } from '../services.ts'
import { type ApproverAsks, CoApproval } from './agent-approvals.ts'
import { ApprovalQuota } from './approval-quota.ts'
import type { EndCause } from './execution.ts'
import { WARNING_TEXT } from './frames.ts'
import type { AdmittedRun, PendingApproval, RefusedRun, WaitingState } from './peer-run.ts'
import type { Reports, RunSubject } from './reports.ts'

export interface ApprovalsDeps extends Pick<ExecutorServices, 'clock' | 'counters' | 'desk' | 'trustEvaluator' | 'policy'> {
  readonly approvers: Pick<ApproverAsks, 'open'>
  readonly reports: Reports
}

export interface ApprovalsInit extends OwnIds {
  /** How long remote approvers have if no local approver must be waited for. Otherwise they have until that request expires. Default: ASK_TIMEOUT_MS. */
  readonly askTimeoutMs?: number | undefined
}

/** A verified request that needs an approval. */
export interface UnapprovedRequest {
  readonly subject: RunSubject
  readonly intent: Intent
  readonly link: PeerLink
  readonly stdin: ExecRequest['stdin']
  readonly question: ApprovalNeeded['question']
}

export interface ApprovalDenial {
  readonly reason: DenialReason
  readonly detail: string
}

type Permitted = Extract<Verdict, { kind: 'permit' | 'files' }>
type NotifyRequester = (state: WaitingState) => void

/** Approvals for requests of peers: asks the approval service and other agents, then lets policy decide again. */
export class Approvals {
  readonly #deps: ApprovalsDeps
  readonly #own: ApprovalsInit
  readonly #room: ApprovalQuota
  readonly #spent = new SpentAnswers()
  /** Files that approvers are being asked about for reading, by the digest of the request. Resolves to who allowed it, or to `withdrawn`. */
  readonly #reading = new Map<string, Promise<string | ApprovalDenial>>()

  constructor(deps: ApprovalsDeps, init: ApprovalsInit) {
    this.#deps = deps
    this.#own = init
    this.#room = new ApprovalQuota(deps)
  }

  /** Admits the request to wait, or returns why it is denied at once. */
  admit(asked: UnapprovedRequest): PendingApproval | ApprovalDenial {
    const { agentId } = asked.link
    const leave = this.#room.enter(agentId, asked.stdin?.len ?? 0)
    if (typeof leave === 'string') return { reason: 'concurrency_limit_reached', detail: leave }
    this.#deps.counters.count('runs_waited')
    const withdrawn = new AbortController()
    return {
      settle: async (notify, stdin) => this.#settle({ ...asked, notify, arriving: stdin }, withdrawn.signal).finally(leave),
      withdraw: (cause) => withdrawn.abort(new Withdrawal(cause)),
    }
  }

  async #settle(asked: Asking, withdrawn: AbortSignal): Promise<AdmittedRun | RefusedRun> {
    const { counters, reports } = this.#deps
    const { subject, stdin } = asked
    const verdict = await (asked.question.file?.action === 'read' ? this.#decideRead(asked, withdrawn) : this.#decide(asked, withdrawn))
    counters.count('reason' in verdict ? 'waits_refused' : 'waits_allowed')
    if ('reason' in verdict) return { reason: verdict.reason, exit: await reports.neverBegan(subject, verdict.reason, verdict.detail) }
    const { permitted, by } = verdict
    return { ...permitted, report: reports.of(subject, permitted.permit, stdin, by) }
  }

  /** A download reads its file by several commands at once. Only the first of them asks, and the others wait for its answer. */
  async #decideRead(waiting: Asking, withdrawn: AbortSignal): Promise<Allowed | ApprovalDenial> {
    const key = waiting.question.permit_sha256
    for (let other = this.#reading.get(key); other !== undefined; other = this.#reading.get(key)) {
      const said = await unlessAborted(other, withdrawn).catch(() => 'withdrawn')
      if (withdrawn.aborted) return withdrawalOf(withdrawn.reason)
      if (typeof said !== 'string') return said
      if (said !== 'withdrawn') return this.#authorize(waiting, { human: null, agents: null }, said)
    }
    const deciding = this.#decide(waiting, withdrawn)
    const told = async (): Promise<string | ApprovalDenial> => {
      try {
        const verdict = await deciding
        return withdrawn.aborted ? 'withdrawn' : 'reason' in verdict ? verdict : verdict.by
      } catch {
        return 'withdrawn'
      } finally {
        // Before the others continue, so that the first of them asks again if it has to.
        this.#reading.delete(key)
      }
    }
    this.#reading.set(key, told())
    return deciding
  }

  async #decide(waiting: Asking, withdrawn: AbortSignal): Promise<Allowed | ApprovalDenial> {
    const settled = new AbortController()
    const late = this.#deps.clock.setTimeout(
      () => settled.abort(new AppError('timeout', 'no approver answered in time')),
      MAX_APPROVAL_WAIT_MS,
    )
    const signal = AbortSignal.any([withdrawn, settled.signal])
    /** Resolves to the time at which the approval request expires. */
    const begun = Promise.withResolvers<number>()
    try {
      const question = await approvalRequestOf(waiting, signal)
      const problem = question === null ? null : unallowable(question)
      if (question === null || problem !== null)
        return withdrawn.aborted
          ? withdrawalOf(withdrawn.reason)
          : { reason: 'approval_denied', detail: problem ?? 'its stdin did not arrive in time' }
      const asked = { ...waiting, question }
      const { notify } = waiting
      const co = this.#coApproval(asked, notify, begun.promise)
      const human = this.#human(asked, notify, co, signal, begun.resolve)
      const agents = co?.then(async (one) => one.collect(signal)) ?? null
      const given = await firstRefusal(human, agents)
      const stands = !('agents' in given) || given.agents === null || (await co)?.stands === true
      if (withdrawn.aborted) return withdrawalOf(withdrawn.reason)
      if (!stands) return { reason: 'approval_denied', detail: 'this machine no longer trusts an agent that approved it' }
      return 'reason' in given ? { ...given, reason: sentReason(given.reason) } : this.#authorize(asked, given)
    } finally {
      late.cancel()
      // Withdraws the requests that are still open.
      settled.abort(new AppError('approval_denied', 'it was decided'))
    }
  }

  /** Asks the agents, or null if the ACL entry names none. */
  #coApproval({ subject, link, question }: UnapprovedRequest, notify: NotifyRequester, until: Promise<number>): Promise<CoApproval> | null {
    const { approvers } = question
    if (approvers === null) return null
    const { clock } = this.#deps
    return until.then((expires_at_ms) => {
      const state = (): WaitingState => ({
        expiresAt: clock.monotonic() + Math.max(0, expires_at_ms - clock.now()),
        approvals_needed: co.needed,
        approvals_given: Math.min(co.given, co.needed),
        reason: needsHuman(question) ? 'human_and_approvers' : 'approvers',
      })
      const of = {
        request_sha256: subject.requestSha256,
        permit_sha256: question.permit_sha256,
        target: { agentId: this.#own.agentId, machineId: this.#own.machineId },
        requester: link.agentId,
        approvers: approvers.agent_ids,
        needed: approvers.needed,
        expires_at_ms,
      }
      const co: CoApproval = new CoApproval(this.#deps, { of, question, onGiven: () => notify(state()) })
      notify(state())
      return co
    })
  }

  /** Asks the approvers of this machine, or null if only agents are asked. `begin` receives the expiry. */
  async #human(
    { question }: UnapprovedRequest,
    notify: NotifyRequester,
    co: Promise<CoApproval> | null,
    signal: AbortSignal,
    begin: (expiresAtMs: number) => void,
  ): Promise<Approval | ApprovalDenial | null> {
    const { clock, desk } = this.#deps
    const { askTimeoutMs = ASK_TIMEOUT_MS } = this.#own
    if (!needsHuman(question)) {
      begin(clock.now() + askTimeoutMs)
      return null
    }
    try {
      const { opened } = await askApprovalService({ clock, desk, spent: this.#spent }, question, signal, (waiting) => {
        const expiresAt = clock.monotonic() + Math.max(0, waiting.expires_at_ms - clock.now())
        if (co === null) notify({ expiresAt, approvals_needed: 0, approvals_given: 0, reason: 'human' })
        begin(waiting.expires_at_ms)
      })
      if (opened.kind === 'approval') begin(clock.now() + askTimeoutMs)
      return opened.kind === 'approval' ? opened.approval : { reason: opened.reason, detail: opened.detail }
    } catch (error) {
      return {
        reason: isAppError(error, 'timeout')
          ? 'approval_timeout'
          : isAppError(error, 'approval_unavailable')
            ? 'approval_unavailable'
            : 'approval_denied',
        detail: `no approver was asked: ${errorText(error)}`,
      }
    }
  }

  /** Decides everything again, because trust, the program or the file may have changed. `by` names the approvers of an earlier decision. */
  #authorize({ intent, link }: UnapprovedRequest, { human, agents }: Given, by = ''): Allowed | ApprovalDenial {
    const { trustEvaluator, policy } = this.#deps
    const { agentId: agent_id, machineId: machine_id } = link
    const who = { kind: 'mesh', agent_id, machine_id, name: trustEvaluator.nameOf(agent_id) } as const
    const verdict = authorize(intent, { ...who, verified: true, trust: trustEvaluator.decide(agent_id, machine_id) }, policy, human, agents)
    const said = [human?.by, agents && `agents:${agents.agents.join(',')}`].filter((one) => typeof one === 'string')
    if (verdict.kind === 'permit' || verdict.kind === 'files') return { permitted: verdict, by: by || said.join('+') }
    if (verdict.kind === 'ask')
      return { reason: 'approval_denied', detail: `it was approved, and needs approval again: ${verdict.question.why}` }
    return { reason: sentReason(verdict.reason), detail: verdict.detail }
  }
}

/** A waiting request, and the stdin that its requester sends ahead. */
export type Asking = UnapprovedRequest & { readonly notify: NotifyRequester; readonly arriving: Promise<Uint8Array> | null }

/** Adds the text of stdin once it has arrived. Null if the wait was aborted. */
const approvalRequestOf = async ({ question, stdin, arriving }: Asking, signal: AbortSignal): Promise<ApprovalRequest | null> => {
  // The content of a file is not shown, and arrives only after the approval.
  if (stdin === null || arriving === null || question.stdin === null || stdin.len > MAX_SHOWN_STDIN) return question
  const bytes = await unlessAborted(arriving, signal).catch(() => null)
  return bytes === null ? null : withStdin(question, bytes)
}

interface Allowed {
  readonly permitted: Permitted
  readonly by: string
}

interface Given {
  readonly human: Approval | null
  readonly agents: AgentsApproval | null
}

/** Local approvers are asked unless the ACL entry leaves the decision to other agents. */
const needsHuman = ({ approvers, always_ask, ask }: ApprovalNeeded['question']): boolean =>
  approvers === null || always_ask !== null || ask !== 'off'

/** Resolves when both have approved, or at the first refusal without waiting for the other. */
const firstRefusal = async (
  human: Promise<Approval | ApprovalDenial | null>,
  agents: Promise<AgentsApproval | ApprovalDenial> | null,
): Promise<Given | ApprovalDenial> => {
  const refused = Promise.withResolvers<ApprovalDenial>()
  const watch = async <T extends object | null>(one: Promise<T>): Promise<T> => {
    const said = await one
    if (said !== null && 'reason' in said) refused.resolve(said as unknown as ApprovalDenial)
    return said
  }
  const both = Promise.all([watch(human), agents === null ? null : watch(agents)]).then(([one, other]): Given | ApprovalDenial => {
    if (one !== null && 'reason' in one) return one
    if (other !== null && 'reason' in other) return other
    return { human: one, agents: other }
  })
  return Promise.race([both, refused.promise])
}

class Withdrawal extends AppError {
  readonly by: EndCause

  constructor(by: EndCause) {
    super('approval_denied', WARNING_TEXT[by])
    this.by = by
  }
}

const withdrawalOf = (reason: unknown): ApprovalDenial => {
  const by = reason instanceof Withdrawal ? reason.by : null
  // The requester of a stopping daemon asks its successor.
  const denial = by === 'access_revoked' ? 'trust_rejected' : by === 'daemon_stopping' ? 'draining' : 'approval_denied'
  return { reason: denial, detail: `the approval request was withdrawn: ${errorText(reason)}` }
}

/** A requester learns whether it was refused, too late, or no approver was connected. A mismatch concerns only this machine. */
const sentReason = (reason: DenialReason): DenialReason => (reason === 'approval_mismatch' ? 'approval_denied' : reason)
