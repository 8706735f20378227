import { findMetacharacter } from '../../protocol/argv-template.ts'
import { isFileCommand } from '../../protocol/file-command.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import { MAX_STDIN_HELD } from '../../protocol/limits/wire.ts'
import type { DenialReason, TrustDecision } from '../../protocol/reasons.ts'
import { findAccount } from '../account.ts'
import type { Approval, ApprovalRequest } from '../approval/approval.ts'
import type { AgentsApproval } from '../approval/statements.ts'
import { findExecutable } from '../executable.ts'
import { type Permit, type PermitFields, type RunCaps, sealPermit } from '../permit.ts'
import type { Slot, Slots } from '../slots.ts'
import { type Acl, type AllowEntry, entriesFor } from './acl.ts'
import { type FileRunPermit, findFileGrant, permitFileCommand } from './authorize-file.ts'
import type { ApprovedReads } from './file-asking.ts'
import { type Intent, resolveCaps } from './intent.ts'
import { type MatchedCommand, type NearMiss, describeMismatch, searchCommands } from './match.ts'
import { type MeshApprovals, askForMesh, checkApprovals, findAskPattern, mayAsk } from './mesh-asking.ts'

export interface Principal {
  readonly kind: 'mesh'
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  /** True if signature, target and nonce of the request are valid. */
  readonly verified: boolean
  readonly trust: TrustDecision
  /** Name of the contact for display. It has no effect on decisions. */
  readonly name?: string | null
  /** Earlier keys of the contact, for a hint about the ACL. They have no effect on decisions. */
  readonly formerly?: readonly AgentId[]
}

export interface PolicyContext {
  readonly acl: Acl
  readonly slots: Slots
  /** The complete environment of a run, which is `scrubbedEnvironment()`, read once at start. */
  readonly env: Readonly<Record<string, string>>
  /** Files whose reading is approved. Absent if each command must be asked about. */
  readonly reads?: ApprovedReads
}

/** The gates in their order. The first that fails decides. */
export const GATES = [
  'sender',
  'trust',
  'enabled',
  'argv',
  'pair',
  'metacharacters',
  'command',
  'cwd',
  'detach',
  'terminal',
  'stdin',
  'timeout',
  'slots',
  'executable',
  'approval',
] as const
export type Gate = (typeof GATES)[number]

/** A denial. All fields except `reason` stay on this host, for the audit log and `acl explain`. */
export interface Denied {
  readonly kind: 'denied'
  readonly gate: Gate
  readonly reason: DenialReason
  readonly detail: string
  /** Description of the matched entry, or null. */
  readonly matched_acl: string | null
  /** The matched command, if a later gate denied it. */
  readonly place: MatchedCommand | null
  /** If no command matched, the command with the longest matching beginning. */
  readonly nearest: NearMiss | null
}

/** A permit with a reserved slot. Release the slot when the run ends. */
export interface Permitted {
  readonly kind: 'permit'
  readonly permit: Permit
  readonly slot: Slot
  /** The ACL command that allows the run. */
  readonly place: MatchedCommand
}

/** The run needs an approval. It has no slot. Call `authorize` again with the approval. */
export interface ApprovalNeeded {
  readonly kind: 'ask'
  readonly question: ApprovalRequest
  /** The matching command or ask pattern of the ACL. */
  readonly place: MatchedCommand
}

/** The same for a file command. */
export interface FilesApprovalNeeded {
  readonly kind: 'ask'
  readonly question: ApprovalRequest
  readonly place: null
}

/** A file command is permitted. Release the slot when the run ends. */
export interface FilesPermitted {
  readonly kind: 'files'
  readonly permit: FileRunPermit
  readonly slot: Slot
}

export type Verdict = Denied | Permitted | ApprovalNeeded | FilesApprovalNeeded | FilesPermitted

/**
 * The only function that permits a mesh run. Decision, slot reservation and permit are one uninterrupted step. It returns a denial and
 * never throws. `agents` are the statements of the approvers in the ACL entry.
 */
export const authorize = (
  intent: Intent,
  principal: Principal,
  context: PolicyContext,
  approval: Approval | null = null,
  agents: AgentsApproval | null = null,
): Verdict => {
  const { acl } = context
  if (isFileCommand(intent.argv)) return authorizeFiles(intent, principal, context, { human: approval, agents })
  const found = findCommand(intent.argv, principal, acl)
  if ('kind' in found) return found
  const { place, isMiss } = found
  const caps = resolveCaps(intent, place)
  if ('gate' in caps) return denied(caps.gate, caps.reason, caps.detail, place)
  const run = { intent, principal, context, place, caps }
  return mayAsk(place, acl, isMiss) ? permitApproved(run, isMiss, { human: approval, agents }) : permitAtOnce(run)
}

const authorizeFiles = (
  intent: Intent,
  principal: Principal,
  context: PolicyContext,
  given: MeshApprovals,
): Denied | FilesApprovalNeeded | FilesPermitted => {
  const entries = entriesOf(principal, context.acl)
  if ('kind' in entries) return entries
  const granted = permitFileCommand(intent, principal, entries)
  if ('gate' in granted) return denied(granted.gate, granted.reason, granted.detail)
  const { permit, question } = granted
  const problem = question === null ? null : filesApproval(question, principal, context, given)
  if (problem !== null) return problem
  const slot = context.slots.reserve(principal.agent_id, intent.stdin_len ?? 0)
  if (!slot) return denied('slots', 'concurrency_limit_reached', fullness(principal, context))
  return Object.freeze({ kind: 'files', permit, slot })
}

/** Null if the command is approved. An approval to read a file is remembered, because the rest of the file needs it too. */
const filesApproval = (
  question: ApprovalRequest,
  { agent_id }: Principal,
  { reads }: PolicyContext,
  given: MeshApprovals,
): Denied | FilesApprovalNeeded | null => {
  const { permit_sha256, file } = question
  const isRead = file?.action === 'read'
  if (isRead && reads?.has(permit_sha256) === true) return null
  const answer = checkApprovals(question, given)
  if (answer === null) {
    if (isRead) reads?.add(permit_sha256, agent_id)
    return null
  }
  return answer.kind === 'ask'
    ? Object.freeze({ kind: 'ask', question, place: null })
    : denied('approval', 'approval_mismatch', answer.detail)
}

interface Resolved {
  readonly intent: Intent
  readonly principal: Principal
  readonly context: PolicyContext
  readonly place: MatchedCommand
  readonly caps: RunCaps
}

const permitAtOnce = ({ intent, principal, context, place, caps }: Resolved): Verdict => {
  const slot = context.slots.reserve(principal.agent_id, intent.stdin_len ?? 0)
  if (!slot) return denied('slots', 'concurrency_limit_reached', fullness(principal, context), place)
  const launch = resolveLaunch(intent.argv, context, place)
  if ('failure' in launch) {
    slot.release()
    return denied('executable', 'spawn_failed', launch.failure, place)
  }
  return { kind: 'permit', permit: sealPermit(fieldsOf({ intent, principal, place, caps }, launch)), slot, place }
}

/** Permits a run that may need approvals. An approval request takes no slot. An approved run takes one with its permit. */
const permitApproved = ({ intent, principal, context, place, caps }: Resolved, isMiss: boolean, given: MeshApprovals): Verdict => {
  const launch = resolveLaunch(intent.argv, context, place)
  if ('failure' in launch) return denied('executable', 'spawn_failed', launch.failure, place)
  const fields = fieldsOf({ intent, principal, place, caps }, launch)
  const { stdin_len, stdin_sha256 = null } = intent
  // The text of stdin arrives after the Request. The code that asks the approvers adds it.
  const stdin = stdin_len === null ? null : { bytes: stdin_len, sha256: stdin_sha256, text: null }
  const answer = askForMesh({ fields, place, isMiss, stdin, name: principal.name ?? null }, context.acl, given)
  if (answer.kind === 'ask') return Object.freeze({ kind: 'ask', question: answer.question, place })
  if (answer.kind === 'mismatch') return denied('approval', 'approval_mismatch', answer.detail, place)
  const slot = context.slots.reserve(principal.agent_id, intent.stdin_len ?? 0)
  if (!slot) return denied('slots', 'concurrency_limit_reached', fullness(principal, context), place)
  return { kind: 'permit', permit: sealPermit({ ...fields, pins: answer.pins }), slot, place }
}

const fieldsOf = (
  { intent, principal, place, caps }: Omit<Resolved, 'context'>,
  launch: Pick<Permit, 'executable' | 'cwd' | 'env' | 'account'>,
): PermitFields => {
  const { agent_id, machine_id } = principal
  const { confinement, description: matched_acl } = place.entry
  const { terminal = null } = intent
  return {
    argv: intent.argv,
    ...launch,
    ...(terminal && { env: { ...launch.env, TERM: terminal.term } }),
    cwd_descriptor: null,
    terminal: terminal && { cols: terminal.columns, rows: terminal.rows },
    record: place.command.record,
    watch: place.command.watch,
    caps,
    confinement,
    sandbox: null,
    pins: [],
    stand_in: null,
    matched_acl,
    principal: { kind: 'mesh', agent_id, machine_id },
  }
}

const denied = (
  gate: Gate,
  reason: DenialReason,
  detail: string,
  place: MatchedCommand | null = null,
  nearest: NearMiss | null = null,
): Denied => Object.freeze({ kind: 'denied', gate, reason, detail, matched_acl: place?.entry.description ?? null, place, nearest })

/** The gates for the requester. Returns the entries of its pair. */
const entriesOf = (principal: Principal, acl: Acl, argv?: readonly string[]): readonly AllowEntry[] | Denied => {
  const sender = senderDenial(principal)
  if (sender !== null) return denied(sender.gate, sender.reason, sender.detail)
  if (acl.enabled !== true) return denied('enabled', 'exec_disabled', `exec is not enabled in ${acl.source ?? 'any ACL file'}`)
  if (argv?.length === 0) return denied('argv', 'argv_not_allowed', 'argv is empty')
  const entries = entriesFor(acl, principal)
  return entries.length === 0 ? denied('pair', 'agent_machine_not_in_acl', unlistedDetail(principal, acl)) : entries
}

/** The gates for the requester and the argv. */
const findCommand = (
  argv: readonly string[],
  principal: Principal,
  acl: Acl,
): { readonly place: MatchedCommand; readonly isMiss: boolean } | Denied => {
  const entries = entriesOf(principal, acl, argv)
  if ('kind' in entries) return entries
  const meta = findMetacharacter(argv)
  if (meta) return denied('metacharacters', 'shell_metachar_in_argv', `token ${meta.token} contains ${JSON.stringify(meta.character)}`)
  const { match, nearest } = searchCommands(entries, argv)
  if (match) return { place: match, isMiss: false }
  const asked = findAskPattern(entries, argv)
  if (asked !== null) return { place: asked, isMiss: true }
  return denied('command', 'argv_not_allowed', nearest ? describeMismatch(nearest, argv) : 'the entry has no command', null, nearest)
}

export interface ListedRun {
  readonly argv: readonly string[]
  readonly detached: boolean
  readonly terminal?: boolean
  /** False if the run keeps no transcript. Absent means true. */
  readonly recorded?: boolean
}

/** True if the ACL lists the command for the pair, with or without approval. Only `authorize` permits a run. */
export const isListed = (
  { argv, detached, terminal, recorded = true }: ListedRun,
  pair: { readonly agentId: AgentId; readonly machineId: MachineId },
  acl: Acl,
): boolean => {
  const principal = { kind: 'mesh', agent_id: pair.agentId, machine_id: pair.machineId, verified: true, trust: 'accept' } as const
  if (isFileCommand(argv)) {
    const entries = entriesOf(principal, acl)
    return !('kind' in entries) && !('gate' in findFileGrant(argv, entries))
  }
  const found = findCommand(argv, principal, acl)
  if ('kind' in found) return false
  const { entry, command } = found.place
  return (!detached || entry.detaching !== null) && (terminal !== true || command.terminal) && (recorded || !command.record)
}

/** The gates before the ACL is read. All failed verifications have one reason, so that a sender cannot find out known nonces and IDs. */
export const senderDenial = ({ verified, trust }: Principal): Pick<Denied, 'gate' | 'reason' | 'detail'> | null => {
  if (verified !== true) return { gate: 'sender', reason: 'unverified_sender', detail: 'the sender did not prove its identity' }
  if (trust !== 'accept') return { gate: 'trust', reason: 'trust_rejected', detail: `trust says ${trust}; exec needs accept` }
  return null
}

/** ACL entries for an earlier key of the contact. They do not apply to its present key. */
export const entriesOfBefore = (
  { allow }: Pick<Acl, 'allow'>,
  { formerly = [] }: { readonly formerly?: readonly AgentId[] },
): readonly AllowEntry[] => allow.filter(({ agent_id }) => formerly.includes(agent_id))

export const newKeyText = ({ line, agent_id }: AllowEntry): string =>
  `line ${line} lists agent ${agent_id.slice(0, 8)}…, whose contact has a new key`

/** The line that replaces the old key in the file. */
export const newKeyLine = ({ agent_id }: { readonly agent_id: AgentId }): string => `agent_id = "${agent_id}"`

const unlistedDetail = (principal: Principal, acl: Acl): string => {
  const [before] = entriesOfBefore(acl, principal)
  if (before !== undefined) return `${newKeyText(before)}, and the file does not list it; write into the file: ${newKeyLine(principal)}`
  if (acl.allow.some((entry) => entry.agent_id === principal.agent_id)) return 'the ACL lists this agent, but on another machine'
  if (acl.allow.some((entry) => entry.machine_id === principal.machine_id)) return 'the ACL lists this machine, but with another agent'
  return 'the ACL lists neither this agent nor this machine'
}

const fullness = (principal: Principal, { acl, slots }: PolicyContext): string => {
  const own = slots.activePerAgent[principal.agent_id] ?? 0
  const runs = `${own} of ${acl.caps.max_concurrent_per_agent} runs of this agent, ${slots.active} of ${acl.caps.max_concurrent_total} in all`
  return `${runs}, which may be sent ${slots.stdinBytes} of ${MAX_STDIN_HELD} bytes of stdin ahead`
}

/** Finds the program, directory and user of a run. Repeated for each permit, so that it uses the present state. */
const resolveLaunch = (
  argv: readonly string[],
  { acl, env }: PolicyContext,
  place: MatchedCommand,
): Pick<Permit, 'executable' | 'cwd' | 'env' | 'account'> | { failure: string } => {
  const lookup = findExecutable(argv[0] ?? '')
  if (lookup.kind !== 'found') return { failure: lookup.detail }
  const { run_as } = place.entry.confinement
  const user = run_as === null ? null : findAccount(run_as)
  if (user?.kind === 'refused') return { failure: `run_as: ${user.detail}` }
  const account = user?.account ?? null
  try {
    const cwd = acl.default_cwd ?? process.cwd()
    return { executable: lookup.executable, cwd, env: account === null ? env : { ...env, HOME: account.home }, account }
  } catch {
    return { failure: "default_cwd is not set in the ACL, and the daemon's working directory does not exist or cannot be read" }
  }
}
