import { BoundedMap, hasShare } from '../../base/bounded-collections.ts'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { ToExecutor } from '../../executor-api/messages.ts'
import { randomBytes } from '../../identity/hash.ts'
import type { ApprovalRequest } from '../../policy/approval/approval.ts'
import {
  type AgentsApproval,
  type ApproverStatement,
  type StatementOf,
  claimedMachine,
  countStatements,
  eligible,
  openStatement,
} from '../../policy/approval/statements.ts'
import type { ApprovalRequest as SignedQuestion } from '../../protocol/desk/approval-request.ts'
import { type AgentId, type MachineId, fromHex, shortId } from '../../protocol/ids.ts'
import {
  MAX_APPROVAL_QUESTION,
  MAX_APPROVAL_WAIT_MS,
  MAX_APPROVER_ASKS,
  MAX_APPROVER_MACHINES,
  MAX_MESH_APPROVERS,
} from '../../protocol/limits/approvals.ts'
import { NONCE_BYTES } from '../../protocol/limits/wire.ts'
import { APPROVAL_REQUEST_DOMAIN, approvalRequest } from '../../protocol/wire/approval-statement.ts'
import { execFrame } from '../../protocol/wire/exec.ts'
import type { PeerLink } from '../links/executor-links.ts'
import type { OwnIds } from '../links/trust-evaluator.ts'
import type { ExecutorServices } from '../services.ts'

/** A network process that carries approval requests to other agents. */
export interface ApproverCarrier {
  approvalAsk(ask: number, agentId: AgentId): void
  approvalWithdrawn(ask: number): void
}

/** An approval request to one agent. */
export interface ApproverAsk {
  readonly agentId: AgentId
  readonly of: StatementOf
  readonly question: SignedQuestion
  /** `isTrusted` evaluates the agent's trust at the moment of the call. */
  onStatement(statement: ApproverStatement, isTrusted: () => boolean): void
}

/** Link and nonce of the last signed request to a machine. */
interface Signed {
  readonly link: PeerLink
  readonly nonce: Uint8Array
}

interface OpenAsk extends ApproverAsk {
  /** By machine of the approver. */
  readonly signed: BoundedMap<MachineId, Signed>
}

export type ApproverAsksDeps = Pick<ExecutorServices, 'clock' | 'counters' | 'trustEvaluator' | 'signatures'>

/** Approval requests to other agents for runs that wait here. The network process carries request and statement but can forge neither. */
export class ApproverAsks {
  readonly #deps: ApproverAsksDeps
  readonly #own: OwnIds
  readonly #carriers = new Set<ApproverCarrier>()
  readonly #asks = new Map<number, OpenAsk>()
  #last = 0

  constructor(deps: ApproverAsksDeps, init: OwnIds) {
    this.#deps = deps
    this.#own = init
  }

  /** Also sends pending requests through this network process. Returns a function that removes it. */
  attach(carrier: ApproverCarrier): () => void {
    this.#carriers.add(carrier)
    for (const [ask, { agentId }] of this.#asks) carrier.approvalAsk(ask, agentId)
    return () => void this.#carriers.delete(carrier)
  }

  /** Returns a function that withdraws the request, or null if too many are open, in all or for this requester. */
  open(ask: ApproverAsk): (() => void) | null {
    const own = [...this.#asks.values()].filter(({ of }) => of.requester === ask.of.requester).length
    if (!hasShare(own, this.#asks.size, MAX_APPROVER_ASKS, { least: MAX_MESH_APPROVERS })) return null
    const number = ++this.#last
    this.#asks.set(number, { ...ask, signed: new BoundedMap({ max: MAX_APPROVER_MACHINES }) })
    for (const carrier of this.#carriers) carrier.approvalAsk(number, ask.agentId)
    return () => this.#close(number)
  }

  /** Signs a request for one stream to its approver. Throws `not_found`, `peer_rejected`, `rate_limited`. */
  async sign(
    call: Extract<ToExecutor, { type: 'sign_approval_request' }>,
    link: PeerLink,
  ): Promise<{ body: Uint8Array; signature: Uint8Array }> {
    const { clock, trustEvaluator, signatures } = this.#deps
    const ask = this.#asks.get(call.ask)
    if (ask === undefined) throw new AppError('not_found', 'the approval request was withdrawn')
    if (link.agentId !== ask.agentId) throw new AppError('peer_rejected', 'the peer of the link is not the approver')
    if (trustEvaluator.decide(link.agentId, link.machineId) !== 'accept')
      throw new AppError('peer_rejected', 'this machine does not trust the approver')
    signatures.admit()
    const nonce = randomBytes(NONCE_BYTES)
    ask.signed.set(link.machineId, { link, nonce })
    const { expires_at_ms, permit_sha256, request_sha256 } = ask.of
    const body = approvalRequest.encode({
      version: 1,
      request_id: call.request_id,
      from_agent: this.#own.agentId,
      from_machine: this.#own.machineId,
      to_agent: link.agentId,
      to_machine: link.machineId,
      stream_nonce: call.stream_nonce,
      created_at_ms: clock.now(),
      request_sha256,
      permit_sha256: fromHex(permit_sha256),
      nonce,
      expires_at_ms,
      expires_in_ms: Math.min(Math.max(0, expires_at_ms - clock.now()), MAX_APPROVAL_WAIT_MS),
      question: JSON.stringify(ask.question),
    })
    return { body, signature: await signatures.sign(APPROVAL_REQUEST_DOMAIN, body) }
  }

  /** Takes the answer that the network process delivers. Only a statement signed by the approver's key counts, and only the first. */
  answered(number: number, bytes: Uint8Array): void {
    const { clock, counters } = this.#deps
    const ask = this.#asks.get(number)
    if (ask === undefined || ask.signed.size === 0) return counters.count('malformed_frames')
    const frame = execFrame.decode(bytes)
    if (frame.type !== 'approval_statement') return counters.count('malformed_frames')
    const signed = ask.signed.get(claimedMachine(frame.body) ?? '')
    if (signed === undefined) return counters.count('statements_refused')
    const { link, nonce } = signed
    const { agentId, machineId, agentPublicKey } = link
    const statement = openStatement(frame, { agentId, machineId, agentPublicKey, nonce }, ask.of, clock.now())
    if (typeof statement === 'string') return counters.count('statements_refused')
    // Trust may have changed since the request.
    const isTrusted = (): boolean => this.#deps.trustEvaluator.decide(agentId, machineId) === 'accept'
    if (!isTrusted()) return counters.count('statements_refused')
    this.#close(number)
    ask.onStatement(statement, isTrusted)
  }

  #close(number: number): void {
    if (this.#asks.delete(number)) for (const carrier of this.#carriers) carrier.approvalWithdrawn(number)
  }
}

export interface CoApprovalInit {
  readonly of: StatementOf
  readonly question: ApprovalRequest
  /** Called for each approval. */
  onGiven(): void
}

/** Why the agents' approval is missing. */
export interface NotGiven {
  readonly reason: 'approval_denied' | 'approval_timeout'
  readonly detail: string
}

interface Said {
  readonly statement: ApproverStatement
  isTrusted(): boolean
}

/** Collects statements of all approvers that the ACL entry names, until enough have allowed the run or too few are left. */
export class CoApproval {
  readonly #deps: { readonly approvers: Pick<ApproverAsks, 'open'>; readonly clock: Clock }
  readonly #init: CoApprovalInit
  readonly #said: Said[] = []
  readonly #open = new Map<AgentId, () => void>()
  readonly #settled = Promise.withResolvers<AgentsApproval | NotGiven>()

  constructor(deps: { readonly approvers: Pick<ApproverAsks, 'open'>; readonly clock: Clock }, init: CoApprovalInit) {
    this.#deps = deps
    this.#init = init
  }

  /** Statements of agents that are trusted now. Blocking an agent removes its statement. */
  get #statements(): ApproverStatement[] {
    return this.#said.filter(({ isTrusted }) => isTrusted()).map(({ statement }) => statement)
  }

  get given(): number {
    return this.#statements.filter(({ decision }) => decision === 'allow').length
  }

  get needed(): number {
    return this.#init.of.needed
  }

  /** Enough of the agents that allowed the run are still trusted. */
  get stands(): boolean {
    return this.given >= this.needed
  }

  /** Resolves when the run is decided or the time is over, and withdraws the open requests. `signal` aborts the collection. */
  async collect(signal: AbortSignal): Promise<AgentsApproval | NotGiven> {
    const { clock } = this.#deps
    const { of } = this.#init
    const onAbort = (): void => this.#settle({ reason: 'approval_denied', detail: 'the approval is no longer needed' })
    signal.addEventListener('abort', onAbort, { once: true })
    if (signal.aborted) onAbort()
    const timer = clock.setTimeout(() => this.#late(), Math.max(0, of.expires_at_ms - clock.now()))
    try {
      if (!signal.aborted) this.#ask()
      return await this.#settled.promise
    } finally {
      timer.cancel()
      signal.removeEventListener('abort', onAbort)
      for (const withdraw of this.#open.values()) withdraw()
    }
  }

  #ask(): void {
    const { of, question } = this.#init
    const agents = eligible(of)
    // A longer request does not fit in a frame with its signature.
    if (Buffer.byteLength(JSON.stringify(question)) > MAX_APPROVAL_QUESTION)
      return this.#settle({ reason: 'approval_denied', detail: 'it is too long to be shown to other agents' })
    for (const agentId of agents) {
      const onStatement: ApproverAsk['onStatement'] = (statement, isTrusted) => this.#take(agentId, { statement, isTrusted })
      const withdraw = this.#deps.approvers.open({ agentId, of, question, onStatement })
      if (withdraw !== null) this.#open.set(agentId, withdraw)
    }
    this.#poll()
  }

  #take(agentId: AgentId, said: Said): void {
    this.#open.delete(agentId)
    this.#said.push(said)
    if (said.statement.decision === 'allow') this.#init.onGiven()
    this.#poll()
  }

  #poll(): void {
    const { of } = this.#init
    const approval = countStatements(this.#statements, of)
    if (approval !== null) return this.#settle(approval)
    if (this.given + this.#open.size >= of.needed) return
    this.#settle({ reason: 'approval_denied', detail: `${this.#sofar()}; too few approvers are left` })
  }

  #late(): void {
    this.#settle({ reason: 'approval_timeout', detail: `${this.#sofar()}; no answer came from ${[...this.#open.keys()].join(', ')}` })
  }

  #sofar(): string {
    const of = (decision: ApproverStatement['decision']): string =>
      this.#statements
        .filter((one) => one.decision === decision)
        .map(({ agent_id }) => shortId(agent_id))
        .join(', ') || 'none'
    return `${this.given} of ${this.needed} approvals of other agents arrived (allowed: ${of('allow')}; refused: ${of('deny')})`
  }

  #settle(result: AgentsApproval | NotGiven): void {
    this.#settled.resolve(result)
  }
}
