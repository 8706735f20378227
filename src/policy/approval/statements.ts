import { attempt, errorText } from '../../base/errors.ts'
import { equalBytes } from '../../identity/hash.ts'
import { verifyAgent } from '../../identity/signing.ts'
import { type AgentId, type MachineId, toHex } from '../../protocol/ids.ts'
import { APPROVAL_STATEMENT_DOMAIN, approvalStatement } from '../../protocol/wire/approval-statement.ts'

/** The run that an approver's statement must name. */
export interface StatementOf {
  /** Digest of the exact bytes of the Request. */
  readonly request_sha256: Uint8Array
  /** Hex. */
  readonly permit_sha256: string
  readonly target: { readonly agentId: AgentId; readonly machineId: MachineId }
  /** The requester, which cannot approve its own run. */
  readonly requester: AgentId
  /** Approvers that the ACL names. */
  readonly approvers: readonly AgentId[]
  readonly needed: number
  readonly expires_at_ms: number
}

/** The signer, as its link authenticated it, and the nonce of the request to it. */
export interface Approver {
  readonly agentId: AgentId
  readonly machineId: MachineId
  readonly agentPublicKey: Uint8Array
  readonly nonce: Uint8Array
}

export interface ApproverStatement {
  readonly agent_id: AgentId
  readonly decision: 'allow' | 'deny'
  readonly permit_sha256: string
}

/** Agents that may approve: those in the ACL, without duplicates, the requester and the target. */
export const eligible = ({ approvers, requester, target }: StatementOf): AgentId[] =>
  [...new Set(approvers)].filter((id) => id !== requester && id !== target.agentId)

/** The machine that a statement names as its signer, or null if the bytes are no statement. Not verified. */
export const claimedMachine = (body: Uint8Array): MachineId | null => attempt(() => approvalStatement.decode(body).approver_machine)

/** Verifies the signed bytes of a statement for this request, or says why they are invalid. Never throws. */
export const openStatement = (
  signed: { readonly body: Uint8Array; readonly signature: Uint8Array },
  approver: Approver,
  of: StatementOf,
  now: number,
): ApproverStatement | string => {
  try {
    if (!eligible(of).includes(approver.agentId)) return 'it is from an agent that may not approve this'
    if (!verifyAgent(approver.agentPublicKey, APPROVAL_STATEMENT_DOMAIN, signed.body, signed.signature)) return 'its signature is wrong'
    const said = approvalStatement.decode(signed.body)
    if (said.approver_agent !== approver.agentId || said.approver_machine !== approver.machineId) return 'it is from another agent'
    if (said.target_agent !== of.target.agentId || said.target_machine !== of.target.machineId) return 'it is for another target'
    if (!equalBytes(said.request_sha256, of.request_sha256)) return 'it is for another request'
    if (toHex(said.permit_sha256) !== of.permit_sha256) return 'it is for another permit'
    if (!equalBytes(said.nonce, approver.nonce)) return 'it answers another approval request'
    if (said.expires_at_ms !== of.expires_at_ms || said.expires_at_ms <= now) return 'it has expired'
    return Object.freeze({ agent_id: approver.agentId, decision: said.decision, permit_sha256: of.permit_sha256 })
  } catch (error) {
    return errorText(error)
  }
}

declare const brand: unique symbol

/** Proof that enough agents approved one permit. Only `countStatements` makes it; valid once. */
export interface AgentsApproval {
  readonly [brand]: true
  readonly permit_sha256: string
  readonly agents: readonly AgentId[]
}

const counted = new WeakSet<object>()

/** Null if fewer than the needed number of eligible agents approved. */
export const countStatements = (statements: readonly ApproverStatement[], of: StatementOf): AgentsApproval | null => {
  const may = eligible(of)
  const allowing = statements.filter(({ decision, permit_sha256 }) => decision === 'allow' && permit_sha256 === of.permit_sha256)
  const agents = [...new Set(allowing.map(({ agent_id }) => agent_id))].filter((id) => may.includes(id))
  if (of.needed < 1 || agents.length < of.needed) return null
  const approval = Object.freeze({ permit_sha256: of.permit_sha256, agents: Object.freeze(agents) })
  counted.add(approval)
  return approval as unknown as AgentsApproval
}

/** Spends the approval. True the first time, and only for the object that `countStatements` made. */
export const spendAgentsApproval = (thing: AgentsApproval): boolean => counted.delete(thing)
