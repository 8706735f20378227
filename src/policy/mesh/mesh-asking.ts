import { type Approval, type RequestedStdin, type ApprovalRequest, spendApproval } from '../approval/approval.ts'
import { type PermitFacts, permitFacts } from '../approval/permit-facts.ts'
import { type AgentsApproval, spendAgentsApproval } from '../approval/statements.ts'
import type { PermitFields } from '../permit.ts'
import type { Acl, AskPattern } from './acl.ts'
import { type MatchedCommand, firstMismatch } from './match.ts'

/** True if the files of the run must be inspected to decide whether it needs approvals. */
export const mayAsk = ({ entry }: MatchedCommand, { always_ask }: Acl, isMiss: boolean): boolean =>
  isMiss || entry.asking.ask === 'always' || entry.asking.approvers.length > 0 || always_ask.length > 0

/** Finds the first ask pattern that matches a command, in the order of the file. */
export const findAskPattern = (entries: readonly MatchedCommand['entry'][], argv: readonly string[]): MatchedCommand | null => {
  for (const entry of entries) {
    const pattern = entry.asking.patterns.find((one) => fitsPattern(one, argv))
    if (pattern !== undefined && entry.asking.ask !== 'off') return { entry, command: pattern }
  }
  return null
}

const fitsPattern = ({ tokens, anyArguments }: AskPattern, argv: readonly string[]): boolean =>
  firstMismatch(tokens, anyArguments ? argv.slice(0, tokens.length) : argv) === null

export interface MeshRun {
  readonly fields: PermitFields
  readonly place: MatchedCommand
  readonly isMiss: boolean
  readonly stdin: RequestedStdin | null
  readonly name: string | null
}

/** Approvals that the run already has. */
export interface MeshApprovals {
  readonly human: Approval | null
  readonly agents: AgentsApproval | null
}

export type MeshApprovalCheck =
  | { readonly kind: 'ask'; readonly question: ApprovalRequest }
  | { readonly kind: 'mismatch'; readonly detail: string }
  /** No further approval is needed. */
  | { readonly kind: 'clear'; readonly pins: PermitFields['pins'] }

/** Inspects each file of the run. Returns the approval request, a mismatch of the given approvals, or the files to check at the start. */
export const askForMesh = (run: MeshRun, acl: Acl, given: MeshApprovals): MeshApprovalCheck => {
  const { fields, place, isMiss, stdin, name } = run
  const { ask: own } = place.entry.asking
  const ask = own === 'always' ? own : isMiss ? 'on-miss' : 'off'
  const { principal } = fields
  if (principal.kind !== 'mesh') return { kind: 'mismatch', detail: 'it is of no agent' }
  const { agent_id, machine_id } = principal
  const asker = { kind: 'mesh', agent_id, machine_id, name } as const
  const facts = permitFacts(fields, {
    door: 'mesh',
    asker,
    target: { host: 'gateway', agent_id: null },
    stdin,
    ask,
    variables: [],
    outlives: fields.caps.keep_bytes !== null,
    always_ask: acl.always_ask,
    // A mesh agent has no file access on this host.
    canWrite: null,
  })
  const question = questionOf(run, facts, asker, ask)
  const { pins } = facts
  if (question === null) return { kind: 'clear', pins }
  return checkApprovals(question, given) ?? { kind: 'clear', pins }
}

/** Spends the given approvals. Null if they allow exactly this request. */
export const checkApprovals = (question: ApprovalRequest, given: MeshApprovals): Exclude<MeshApprovalCheck, { kind: 'clear' }> | null => {
  const needsHuman = question.approvers === null || question.always_ask !== null || question.ask !== 'off'
  if ((needsHuman && given.human === null) || (question.approvers !== null && given.agents === null)) {
    // Any approval given is used up, whatever the result.
    if (given.human === null && given.agents === null) return { kind: 'ask', question }
    return { kind: 'mismatch', detail: 'a person and other agents must allow it, and only one of these approvals was given' }
  }
  // The ACL may have become narrower since the approval request.
  if (question.approvers !== null && given.agents !== null && !areEnough(given.agents, question.approvers))
    return { kind: 'mismatch', detail: 'the ACL needs approvals of more agents, or of other agents, than have allowed it' }
  const problem = problemOf(needsHuman ? given.human : null, question.approvers === null ? null : given.agents, question)
  return problem === null ? null : { kind: 'mismatch', detail: problem }
}

const areEnough = ({ agents }: AgentsApproval, { agent_ids, needed }: NonNullable<ApprovalRequest['approvers']>): boolean =>
  agents.filter((agent) => agent_ids.includes(agent)).length >= needed

const questionOf = (
  { fields, place, isMiss, stdin }: MeshRun,
  { pins: _pins, stand_in: _none, ...facts }: PermitFacts,
  asker: Extract<ApprovalRequest['asker'], { kind: 'mesh' }>,
  ask: ApprovalRequest['ask'],
): ApprovalRequest | null => {
  const { approvers, approvals_needed } = place.entry.asking
  const why = whyOf(place, facts.always_ask, isMiss)
  if (why === null) return null
  const question: ApprovalRequest = {
    ...facts,
    // No pattern of an allowlist covers what will be typed.
    ...(fields.terminal !== null && { opaque: [ON_A_TERMINAL, ...(facts.opaque === null ? [] : [facts.opaque])].join('; '), programs: [] }),
    door: 'mesh',
    session_id: null,
    asker,
    target: { host: 'gateway', agent_id: null },
    argv: fields.argv,
    cwd: fields.cwd,
    env_names: Object.keys(fields.env).sort(),
    stdin,
    security: 'allowlist',
    ask,
    ask_fallback: 'deny',
    why,
    approvers: approvers.length === 0 ? null : { agent_ids: approvers, needed: approvals_needed },
  }
  return Object.freeze(question)
}

/** Why the arguments of a command on a terminal do not show all that it does. */
const ON_A_TERMINAL = 'it runs on a terminal: the requester types into it while it runs, and no approver sees that'

/** Null if the ACL alone allows the run. */
const whyOf = ({ entry, command }: MatchedCommand, alwaysAsk: string | null, isMiss: boolean): string | null => {
  const { ask, approvers, approvals_needed } = entry.asking
  if (alwaysAsk !== null) return `the list that always asks: ${alwaysAsk}`
  if (ask === 'always') return `the entry ${JSON.stringify(entry.description)} says ask = "always"`
  if (isMiss) return `no command of the ACL lists it; ask_patterns of ${JSON.stringify(entry.description)} has it (line ${command.line})`
  return approvers.length === 0 ? null : `the entry needs ${approvals_needed} of ${approvers.length} other agents`
}

const problemOf = (human: Approval | null, agents: AgentsApproval | null, { permit_sha256, file }: ApprovalRequest): string | null => {
  const what = file === undefined ? 'the command, its program, script or directory' : 'the file, its directory or the ACL'
  const changed = `${what} has changed since it was approved`
  if (human !== null && !spendApproval(human)) return 'this approval was used before'
  if (agents !== null && !spendAgentsApproval(agents)) return 'the approval of these agents was used before'
  return [human, agents].every((one) => one === null || one.permit_sha256 === permit_sha256) ? null : changed
}
