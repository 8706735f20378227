import { AppError, errorText } from '../../base/errors.ts'
import { SpentAnswers, spendApproval } from '../../policy/approval/approval.ts'
import { QUESTION_FIELDS, type ApprovalRequest } from '../../protocol/desk/approval-request.ts'
import { type AgentId, toHex } from '../../protocol/ids.ts'
import { parseTable } from '../../protocol/json-shape.ts'
import { closedProblemOf } from '../../protocol/json-table.ts'
import { DESK_SHAPE } from '../../protocol/limits/approvals.ts'
import { APPROVAL_STATEMENT_DOMAIN, type SignedApprovalRequest, approvalStatement } from '../../protocol/wire/approval-statement.ts'
import { execFrame } from '../../protocol/wire/exec.ts'
import { askApprovalService } from '../ask-approval-service.ts'
import type { ExecCounters } from '../exec-counters.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { OwnIds, TrustEvaluator } from '../links/trust-evaluator.ts'
import type { ExecutorServices } from '../services.ts'
import type { ApprovalDenial } from './approvals.ts'
import { ApprovalQuota } from './approval-quota.ts'
import type { EndCause } from './execution.ts'
import { type PeerStreamWriter, WARNING_TEXT } from './frames.ts'
import { Lease } from './lease.ts'
import type { PeerRun } from './peer-run.ts'
import type { Reports, RunSubject } from './reports.ts'

export interface PeerApprovalsDeps extends Pick<ExecutorServices, 'clock' | 'counters' | 'desk' | 'log' | 'signatures'> {
  readonly trustEvaluator: Pick<TrustEvaluator, 'nameOf'>
  readonly reports: Reports
}

/** A verified approval request of an accepted agent, for a run on its machine. */
export interface RequestedApproval {
  readonly subject: RunSubject
  readonly request: SignedApprovalRequest
  readonly link: PeerLink
  readonly outlet: PeerStreamWriter
}

/** Handles the frames and the end of a peer's stream. */
export interface Carried {
  receive(bytes: Uint8Array): void
  lost(outlet: PeerStreamWriter): void
  over(outlet: PeerStreamWriter): void
  violated(what: string): void
}

/** A pending request on a stream, and when it is answered. */
export interface AnsweredStream {
  readonly stream: Carried & Pick<PeerRun, 'end' | 'kill'>
  readonly answered: Promise<void>
}

const isDenial = (answer: Uint8Array | ApprovalDenial): answer is ApprovalDenial => 'reason' in answer

/** Approval requests of other machines, decided by the approvers of this one. Only their decision creates a signed statement. */
export class PeerApprovals {
  readonly #deps: PeerApprovalsDeps
  readonly #own: OwnIds
  readonly #room: ApprovalQuota
  readonly #spent = new SpentAnswers()

  constructor(deps: PeerApprovalsDeps, init: OwnIds) {
    this.#deps = deps
    this.#own = init
    this.#room = new ApprovalQuota(deps)
  }

  admit(asked: RequestedApproval): AnsweredStream | ApprovalDenial {
    const read = readApprovalRequest(asked, (id) => this.#deps.trustEvaluator.nameOf(id))
    if (typeof read === 'string') return { reason: 'approval_denied', detail: `it sent an invalid approval request: ${read}` }
    const { agentId } = asked.link
    const leave = this.#room.enter(agentId, 0)
    if (typeof leave === 'string') return { reason: 'concurrency_limit_reached', detail: `it asked for an approval; ${leave}` }
    this.#deps.counters.count('approvals_asked')
    const stream = new PeerApproval(this.#deps)
    return { stream, answered: this.#answer(asked, read, stream).finally(leave) }
  }

  async #answer(asked: RequestedApproval, read: ApprovalRequest, stream: PeerApproval): Promise<void> {
    const { log, reports } = this.#deps
    try {
      const answer = await this.#decide(asked, read, stream.withdrawn)
      asked.outlet.send(isDenial(answer) ? await reports.denied(asked.subject, answer.reason, answer.detail) : answer)
    } catch (error) {
      log.error({ request_id: asked.subject.key.request_id, error: errorText(error) }, 'an approval request could not be answered')
    } finally {
      stream.answered()
      asked.outlet.close()
    }
  }

  /** The encoded statement, or a denial if no approver decided. */
  async #decide({ request }: RequestedApproval, read: ApprovalRequest, signal: AbortSignal): Promise<Uint8Array | ApprovalDenial> {
    const { clock, desk } = this.#deps
    const none = (why: string): ApprovalDenial => ({ reason: 'approval_denied', detail: `it asked for an approval; ${why}` })
    const until = new AbortController()
    const timer = clock.setTimeout(() => until.abort(new AppError('timeout', 'no approver answered in time')), request.expires_in_ms)
    try {
      const service = { clock, desk, spent: this.#spent }
      const { opened, by } = await askApprovalService(service, read, AbortSignal.any([signal, until.signal]))
      // The approval service is full or stopping. The approver refused nothing, so the request may be sent again.
      if (!by.startsWith('human:')) return none('reason' in opened ? opened.detail : 'no approver decided it')
      if (opened.kind === 'approval')
        return spendApproval(opened.approval) ? await this.#sign(request, 'allow') : none('its answer was used before')
      return opened.reason === 'approval_denied' ? await this.#sign(request, 'deny') : none(opened.detail)
    } catch (error) {
      return none(errorText(error))
    } finally {
      timer.cancel()
    }
  }

  async #sign(request: SignedApprovalRequest, decision: 'allow' | 'deny'): Promise<Uint8Array> {
    const { request_sha256, permit_sha256, expires_at_ms, nonce, from_agent, from_machine } = request
    const body = approvalStatement.encode({
      version: 1,
      request_sha256,
      permit_sha256,
      target_agent: from_agent,
      target_machine: from_machine,
      approver_agent: this.#own.agentId,
      approver_machine: this.#own.machineId,
      decision,
      expires_at_ms,
      nonce,
    })
    const signature = await this.#deps.signatures.sign(APPROVAL_STATEMENT_DOMAIN, body)
    return execFrame.encode({ type: 'approval_statement', body, signature })
  }
}

/** An approval request on its stream. The end of the stream withdraws it. */
class PeerApproval implements Carried, Pick<PeerRun, 'end' | 'kill'> {
  readonly #counters: ExecCounters
  readonly #lease: Lease
  readonly #withdrawal = new AbortController()
  readonly withdrawn = this.#withdrawal.signal

  constructor(deps: Pick<PeerApprovalsDeps, 'clock' | 'counters'>) {
    this.#counters = deps.counters
    this.#lease = new Lease(deps, { onExpired: () => this.end('lease_expired') })
  }

  answered(): void {
    this.#lease.stop()
  }

  receive(bytes: Uint8Array): void {
    this.#lease.renew()
    try {
      const frame = execFrame.decode(bytes)
      if (frame.type === 'lease_renew') return
      if (frame.type === 'cancel') return this.end('cancelled')
      this.violated(`${frame.type} after an approval request`)
    } catch (error) {
      this.violated(errorText(error))
    }
  }

  lost(): void {
    this.end('peer_disconnected')
  }

  over(): void {
    this.end('peer_disconnected')
  }

  violated(_what: string): void {
    this.#counters.count('malformed_frames')
    this.end('peer_disconnected')
  }

  end(cause: EndCause): void {
    this.#lease.stop()
    this.#withdrawal.abort(new AppError('approval_denied', `the approval request was withdrawn: ${WARNING_TEXT[cause]}`))
  }

  kill(): void {
    this.end('daemon_stopping')
  }
}

/**
 * Builds an approval request from the target's claims about a run that another agent requested of it. Fields by which the target could
 * avoid asking the approvers are replaced.
 */
const readApprovalRequest = ({ request, link }: RequestedApproval, nameOf: (id: AgentId) => string | null): ApprovalRequest | string => {
  const fields = parseTable(Buffer.from(request.question), DESK_SHAPE)
  if (typeof fields === 'string') return fields
  const problem = closedProblemOf(fields, QUESTION_FIELDS)
  if (problem !== null) return problem
  const said = fields as unknown as ApprovalRequest
  if (said.asker.kind !== 'mesh') return 'its requester is not an agent'
  if (said.permit_sha256 !== toHex(request.permit_sha256)) return 'it is for another permit'
  return {
    ...said,
    door: 'mesh',
    session_id: null,
    asker: { ...said.asker, name: nameOf(said.asker.agent_id) },
    grant_sha256: null,
    target: { host: 'node', agent_id: link.agentId },
    security: 'full',
    ask: 'always',
    ask_fallback: 'deny',
    why: `the agent that would run it asks for the approval of this agent: ${said.why}`.slice(0, MAX_WHY),
  }
}

/** Maximum text length of the approval service. */
const MAX_WHY = 1_024
