import type { LocalInterface } from '../../protocol/reasons.ts'
import { type Approval, type RequestedStdin, type ApprovalRequest, spendApproval } from '../approval/approval.ts'
import type { AlwaysAskRule } from '../approval/ask-rules.ts'
import type { PermitFacts } from '../approval/permit-facts.ts'
import type { ResolvedExec } from '../modes.ts'
import type { PermitFields } from '../permit.ts'
import { type Refused, refused } from './intent.ts'

/** What the configuration, the session and the call together say of one run. */
export interface ExecInForce extends Pick<ResolvedExec, 'host' | 'security' | 'ask' | 'ask_fallback'> {
  readonly door: LocalInterface
  /** What the caller calls itself. */
  readonly label: string
  readonly stdin: RequestedStdin | null
  /** Commands that need a human each time. */
  readonly always_ask: readonly AlwaysAskRule[]
}

/** It may run once somebody has allowed it: no slot is taken, and the same is asked again with the approval. */
export interface LocalApprovalNeeded {
  readonly kind: 'ask'
  readonly question: ApprovalRequest
}

/** Nothing runs where a place that counts says `deny`. */
export const deniedByMode = ({ security, host }: ExecInForce): Refused | null =>
  security === 'deny'
    ? refused(
        'command_denied',
        `security is "deny" for commands on the host ${host}; tools.exec in the configuration says so, or a human by x0x exec-mode`,
        {
          rule: 'security',
          host,
        },
      )
    : null

/** On this host whoever keeps the store has a word in all that runs; in a sandbox, or on an agent with rules of its own, only where it was asked for. */
const needsSomebody = ({ host, ask }: ExecInForce, alwaysAsk: string | null): boolean =>
  host === 'gateway' || ask === 'always' || alwaysAsk !== null

const whyOf = ({ security, ask, host }: ExecInForce, alwaysAsk: string | null): string => {
  if (alwaysAsk !== null) return `the list that always asks: ${alwaysAsk}`
  return ask === 'always' ? 'ask is "always"' : `security is "${security}" and ask is "${ask}" on the host ${host}`
}

/** What a run is known by before it is permitted: of a command for another host, only its words. */
export interface RunDescription extends Pick<PermitFields, 'argv' | 'cwd' | 'env'> {
  readonly session_id: string | null
  readonly agent_id: string | null
}

/** The question that must be answered first, a refusal, or null: it may run, now that everything about it was looked at. */
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

/** An approval is good once, and for the very permit that was asked about. */
const wrongApproval = (approval: Approval, permitSha256: string): Refused | null => {
  if (!spendApproval(approval)) return refused('approval_mismatch', 'this approval was used before; ask again')
  return approval.permit_sha256 === permitSha256
    ? null
    : refused(
        'approval_mismatch',
        'what would run is no more what was approved: the command, its program, script, directory or environment changed; ask again',
      )
}
