import { findMetacharacter } from '../../protocol/argv-template.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import { MAX_STDIN_HELD } from '../../protocol/limits/wire.ts'
import type { DenialReason, TrustDecision } from '../../protocol/reasons.ts'
import { findAccount } from '../account.ts'
import type { Approval, ApprovalRequest } from '../approval/approval.ts'
import type { AgentsApproval } from '../approval/statements.ts'
import { findExecutable } from '../executable.ts'
import { type Permit, type PermitFields, type RunCaps, sealPermit } from '../permit.ts'
import type { Slot, Slots } from '../slots.ts'
import type { Acl, AllowEntry } from './acl.ts'
import { type Intent, resolveCaps } from './intent.ts'
import { type MatchedCommand, type NearMiss, describeMismatch, searchCommands } from './match.ts'
import { type MeshApprovals, askForMesh, findAskPattern, mayAsk } from './mesh-asking.ts'

/** Who asks. */
export interface Principal {
  readonly kind: 'mesh'
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  /** The request's signature, target and nonce hold. */
  readonly verified: boolean
  readonly trust: TrustDecision
  /** The contact's name, for a human to read; it decides nothing. */
  readonly name?: string | null
  /** Keys that the contact had before, to tell what a file should say; they decide nothing. */
  readonly formerly?: readonly AgentId[]
}

export interface PolicyContext {
  readonly acl: Acl
  readonly slots: Slots
  /** The child's whole environment: `scrubbedEnvironment()`, read once at start. */
  readonly env: Readonly<Record<string, string>>
}

/** The gates in their order; the first that fails answers and later ones are not consulted. */
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
  'stdin',
  'timeout',
  'slots',
  'executable',
  'approval',
] as const
export type Gate = (typeof GATES)[number]

/** Refused; all but `reason` stays on this host (journal, explain). */
export interface Denied {
  readonly kind: 'denied'
  readonly gate: Gate
  readonly reason: DenialReason
  readonly detail: string
  /** The description of the entry whose command matched, where one did. */
  readonly matched_acl: string | null
  /** The command that matched, where a later gate refused. */
  readonly place: MatchedCommand | null
  /** Where no command matched: the one that agrees for longest. */
  readonly nearest: NearMiss | null
}

/** Allowed: the slot is reserved already and must be released when the run is over. */
export interface Permitted {
  readonly kind: 'permit'
  readonly permit: Permit
  readonly slot: Slot
  /** The command of the ACL that allows it. */
  readonly place: MatchedCommand
}

/** It may run once somebody has allowed it: no slot is taken, and `authorize` is asked again with the approval. */
export interface ApprovalNeeded {
  readonly kind: 'ask'
  readonly question: ApprovalRequest
  /** The command of the ACL that has it, or the pattern of what may be asked for. */
  readonly place: MatchedCommand
}

export type Verdict = Denied | Permitted | ApprovalNeeded

/**
 * The only thing that says yes. Decides, reserves the slot and makes the permit in one step that
 * nothing can interrupt. A denial is a value; it never throws. `agents`: the word of the approvers whom the entry names.
 */
export const authorize = (
  intent: Intent,
  principal: Principal,
  context: PolicyContext,
  approval: Approval | null = null,
  agents: AgentsApproval | null = null,
): Verdict => {
  const { acl } = context
  const found = findCommand(intent.argv, principal, acl)
  if ('kind' in found) return found
  const { place, isMiss } = found
  const caps = resolveCaps(intent, place)
  if ('gate' in caps) return denied(caps.gate, caps.reason, caps.detail, place)
  const run = { intent, principal, context, place, caps }
  return mayAsk(place, acl, isMiss) ? permitApproved(run, isMiss, { human: approval, agents }) : permitAtOnce(run)
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

/** Somebody may have to be asked first: a question takes no slot, and what was allowed takes one as it is permitted. */
const permitApproved = ({ intent, principal, context, place, caps }: Resolved, isMiss: boolean, given: MeshApprovals): Verdict => {
  const launch = resolveLaunch(intent.argv, context, place)
  if ('failure' in launch) return denied('executable', 'spawn_failed', launch.failure, place)
  const fields = fieldsOf({ intent, principal, place, caps }, launch)
  const { stdin_len, stdin_sha256 = null } = intent
  // Its text comes behind the Request; whoever asks about it adds that.
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
  return {
    argv: intent.argv,
    ...launch,
    cwd_descriptor: null,
    terminal: null,
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

/** The gates up to the command: who asks, and for what. */
const findCommand = (
  argv: readonly string[],
  principal: Principal,
  acl: Acl,
): { readonly place: MatchedCommand; readonly isMiss: boolean } | Denied => {
  const sender = senderDenial(principal)
  if (sender !== null) return denied(sender.gate, sender.reason, sender.detail)
  if (acl.enabled !== true) return denied('enabled', 'exec_disabled', `exec is not enabled in ${acl.source ?? 'any ACL file'}`)
  if (argv.length === 0) return denied('argv', 'argv_not_allowed', 'argv is empty')
  const entries = acl.allow.filter((entry) => entry.agent_id === principal.agent_id && entry.machine_id === principal.machine_id)
  if (entries.length === 0) return denied('pair', 'agent_machine_not_in_acl', unlistedDetail(principal, acl))
  const meta = findMetacharacter(argv)
  if (meta) return denied('metacharacters', 'shell_metachar_in_argv', `token ${meta.token} contains ${JSON.stringify(meta.character)}`)
  const { match, nearest } = searchCommands(entries, argv)
  if (match) return { place: match, isMiss: false }
  const asked = findAskPattern(entries, argv)
  if (asked !== null) return { place: asked, isMiss: true }
  return denied('command', 'argv_not_allowed', nearest ? describeMismatch(nearest, argv) : 'the entry has no command', null, nearest)
}

/** Whether the file has this command for the pair at all, at once or for who is asked. It allows nothing: `authorize` does. */
export const isListed = (
  { argv, detached }: { readonly argv: readonly string[]; readonly detached: boolean },
  pair: { readonly agentId: AgentId; readonly machineId: MachineId },
  acl: Acl,
): boolean => {
  const principal = { kind: 'mesh', agent_id: pair.agentId, machine_id: pair.machineId, verified: true, trust: 'accept' } as const
  const found = findCommand(argv, principal, acl)
  return !('kind' in found) && (!detached || found.place.entry.detaching !== null)
}

/** The gates before the file is looked at. */
export const senderDenial = ({ verified, trust }: Principal): Pick<Denied, 'gate' | 'reason' | 'detail'> | null => {
  if (verified !== true) return { gate: 'sender', reason: 'unverified_sender', detail: 'the sender did not prove who it is' }
  if (trust !== 'accept') return { gate: 'trust', reason: 'trust_rejected', detail: `trust says ${trust}; exec needs accept` }
  return null
}

/** Entries of a file for a key that a contact had before. None of them is for the key that it has. */
export const entriesOfBefore = (
  { allow }: Pick<Acl, 'allow'>,
  { formerly = [] }: { readonly formerly?: readonly AgentId[] },
): readonly AllowEntry[] => allow.filter(({ agent_id }) => formerly.includes(agent_id))

export const newKeyText = ({ line, agent_id }: AllowEntry): string =>
  `line ${line} lists agent ${agent_id.slice(0, 8)}…, whose contact has a new key`

/** The line to put in the place of that of the file. */
export const newKeyLine = ({ agent_id }: { readonly agent_id: AgentId }): string => `agent_id = "${agent_id}"`

const unlistedDetail = (principal: Principal, acl: Acl): string => {
  const [before] = entriesOfBefore(acl, principal)
  if (before !== undefined) return `${newKeyText(before)}, and the file does not list it; write there: ${newKeyLine(principal)}`
  if (acl.allow.some((entry) => entry.agent_id === principal.agent_id)) return 'the ACL lists this agent, but on another machine'
  if (acl.allow.some((entry) => entry.machine_id === principal.machine_id)) return 'the ACL lists this machine, but with another agent'
  return 'the ACL lists neither this agent nor this machine'
}

const fullness = (principal: Principal, { acl, slots }: PolicyContext): string => {
  const own = slots.activePerAgent[principal.agent_id] ?? 0
  const runs = `${own} of ${acl.caps.max_concurrent_per_agent} runs of this agent, ${slots.active} of ${acl.caps.max_concurrent_total} in all`
  return `${runs}, which may be sent ${slots.stdinBytes} of ${MAX_STDIN_HELD} bytes of stdin ahead`
}

/** What would start, where, and as whom: looked up for every permit, so that it is what stands there now. */
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
