import type { LocalInterface } from '../../protocol/reasons.ts'
import { type Approval, type RequestedStdin, type ApprovalRequest, spendApproval } from '../approval/approval.ts'
import type { AlwaysAskRule } from '../approval/ask-rules.ts'
import type { PermitFacts } from '../approval/permit-facts.ts'
import type { ResolvedExec } from '../modes.ts'
import type { PermitFields } from '../permit.ts'
import { type Refused, refused } from './intent.ts'

/** The modes in force for one run, from configuration, session and call. */
export interface ExecInForce extends Pick<ResolvedExec, 'host' | 'security' | 'ask' | 'ask_fallback'> {
  readonly door: LocalInterface
  /** Name that the client gives itself. */
  readonly label: string
  readonly stdin: RequestedStdin | null
  /** Commands that need an approver for each run. */
  readonly always_ask: readonly AlwaysAskRule[]
}

/** The run needs an approval. No slot is taken. The decision is repeated with the approval. */
export interface LocalApprovalNeeded {
  readonly kind: 'ask'
  readonly question: ApprovalRequest
}

export const deniedByMode = ({ security, host }: ExecInForce): Refused | null =>
  security === 'deny'
    ? refused('command_denied', `security is "deny" for commands on the host ${host}; it was set in tools.exec or by x0x exec-mode`, {
        rule: 'security',
        host,
      })
    : null

/** True if an approver or the store must decide. On this host that is each run; in a sandbox or on another agent only if asked for. */
const needsSomebody = ({ host, ask }: ExecInForce, alwaysAsk: string | null): boolean =>
  host === 'gateway' || ask === 'always' || alwaysAsk !== null

const whyOf = ({ security, ask, host }: ExecInForce, alwaysAsk: string | null): string => {
  if (alwaysAsk !== null) return `the list that always asks: ${alwaysAsk}`
  return ask === 'always' ? 'ask is "always"' : `security is "${security}" and ask is "${ask}" on the host ${host}`
}

/** Identity of a run before its permit. For another host, only argv is known. */
export interface RunDescription extends Pick<PermitFields, 'argv' | 'cwd' | 'env'> {
  readonly session_id: string | null
  readonly agent_id: string | null
}

/** Returns the approval request that must be answered first, a refusal, or null if the run may start. */
export const askLocally = (
  run: RunDescription,
  facts: Omit<PermitFacts, 'pins' | 'stand_in'>,
  exec: ExecInForce,
  approval: Approval | null,
): LocalApprovalNeeded | Refused | null => {
  const { always_ask, ...shown } = facts
  if (!needsSomebody(exec, always_ask)) return null
  if (approval !== null) return wrongApproval(approval, facts.permit_sha256)
  const { security, ask, ask_fallback, host, door, label, stdin } = exec
  const question: ApprovalRequest = {
    ...shown,
    door,
    session_id: run.session_id,
    asker: { kind: 'local', label },
    target: { host, agent_id: run.agent_id },
    argv: run.argv,
    cwd: run.cwd,
    env_names: Object.keys(run.env).sort(),
    stdin,
    security,
    ask,
    ask_fallback,
    always_ask,
    why: whyOf(exec, always_ask),
    approvers: null,
  }
  return Object.freeze({ kind: 'ask', question: Object.freeze(question) })
}

/** An approval is valid once, and only for the permit of its request. */
const wrongApproval = (approval: Approval, permitSha256: string): Refused | null => {
  if (!spendApproval(approval)) return refused('approval_mismatch', 'this approval was used before; run it again, for a new approval')
  return approval.permit_sha256 === permitSha256
    ? null
    : refused(
        'approval_mismatch',
        'the command, its program, script, directory or environment has changed since it was approved; try again',
      )
}
