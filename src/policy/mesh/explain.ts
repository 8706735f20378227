import { octal } from '../../base/format.ts'
import { isFileCommand, parseFileCommand } from '../../protocol/file-command.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { ApprovalRequest } from '../approval/approval.ts'
import { scrubbedEnvironment } from '../environment.ts'
import type { RunCaps } from '../permit.ts'
import { Slots } from '../slots.ts'
import { quote, quoteArgv } from '../tokens.ts'
import { type Acl, type AllowEntry, entriesFor } from './acl.ts'
import { GATES, type Gate, type Verdict, authorize } from './authorize.ts'
import { type Confinement, confinementText } from './confinement.ts'
import { isAskedAbout, needsApproval, whyAsked } from './file-asking.ts'
import { type FileGrant, type MatchedGrant, findGrant } from './file-grants.ts'
import type { Intent } from './intent.ts'
import { type MatchedCommand, describeMismatch } from './match.ts'

/** A hypothetical request, in which this agent on this machine, authenticated and trusted, sends this argv now. */
export interface ExplainRequest {
  readonly acl: Acl
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly argv: readonly string[]
  readonly stdin_len?: number | null
  readonly timeout_ms?: number | null
  readonly cwd?: string | null
  readonly clamp?: boolean
  readonly detach?: boolean
  readonly terminal?: boolean
}

/** A command of the file. Indices count from 0, lines from 1. */
export interface ExplainedCommand {
  readonly entry: number
  readonly command: number
  /** True for one of `ask_patterns`, which an approver may allow. */
  readonly pattern: boolean
  readonly description: string
  /** True if the pair may query it. */
  readonly discoverable: boolean
  readonly line: number
  readonly argv: readonly string[]
  /** It may run on a terminal, its runs are recorded, and operators may look on. */
  readonly terminal: boolean
  readonly record: boolean
  readonly watch: boolean
}

/** A files table of the file. Indices count from 0, lines from 1. */
export interface ExplainedGrant extends FileGrant {
  readonly entry: number
  readonly table: number
  readonly description: string
  /** True if the pair may query it. */
  readonly discoverable: boolean
}

/** The result, as `--json` prints it. */
export interface Explanation {
  readonly allowed: boolean
  readonly reason: DenialReason | null
  readonly detail: string | null
  readonly gates: readonly { readonly gate: Gate; readonly result: 'pass' | 'ask' | 'deny' | 'not_reached' }[]
  readonly matched: ExplainedCommand | null
  /** Without a match, the command with the longest matching beginning and the token that differs. */
  readonly nearest: (ExplainedCommand & { readonly token: number; readonly why: string }) | null
  /** The files table that applies to a file command, or null for a program. */
  readonly grant: ExplainedGrant | null
  /** The run that would start, or null for a file command. */
  readonly run: {
    readonly executable: string
    readonly cwd: string
    readonly caps: RunCaps
    readonly confinement: Confinement
  } | null
  /** Approvals that are needed first, or null if the file alone decides. */
  readonly asks: ExplainedAsking | null
  readonly source: string | null
}

/** Content of the approval request. */
export interface ExplainedAsking {
  /** True if a local approver must decide. */
  readonly human: boolean
  readonly why: string
  readonly always_ask: string | null
  readonly approvers: readonly AgentId[]
  readonly approvals_needed: number
  /** True if a permission for longer than once is possible. */
  readonly may_last: boolean
}

/** Size and type do not affect the verdict. */
const USUAL_TERMINAL = { columns: 80, rows: 24, term: 'xterm-256color' } as const

/** Calls the daemon's `authorize` with separate slots, so that no program runs and no slot is taken. */
export const explain = (request: ExplainRequest): Explanation => {
  const { acl, agent_id, machine_id, argv } = request
  const intent: Intent = {
    argv,
    cwd: request.cwd ?? null,
    stdin_len: request.stdin_len ?? null,
    timeout_ms: request.timeout_ms ?? null,
    clamp: request.clamp ?? false,
    detach: request.detach === true ? { lifetime_ms: null, keep_bytes: null } : null,
    terminal: request.terminal === true ? USUAL_TERMINAL : null,
  }
  const principal = { kind: 'mesh', agent_id, machine_id, verified: true, trust: 'accept' } as const
  const verdict = authorize(intent, principal, { acl, slots: new Slots(acl.caps), env: scrubbedEnvironment() })
  const files = filesOf(request)
  const said = outcome(verdict, files?.asks ?? null)
  return Object.freeze({
    ...said,
    gates: gatesOf(verdict, said.asks !== null),
    ...places(request, verdict),
    grant: files?.grant ?? null,
    source: acl.source,
  })
}

/** The table that applies to a file command, and the approvals that it needs. */
const filesOf = ({
  acl,
  agent_id,
  machine_id,
  argv,
}: ExplainRequest): { readonly grant: ExplainedGrant; readonly asks: ExplainedAsking | null } | null => {
  const command = acl.enabled ? parseFileCommand(argv) : null
  if (command === null) return null
  const found = findGrant(entriesFor(acl, { agent_id, machine_id }), command)
  if (found === null) return null
  const { entry, grant } = found
  const { description, discoverable } = entry
  return {
    grant: { entry: acl.allow.indexOf(entry), table: entry.files.indexOf(grant), description, discoverable, ...grant },
    asks: isAskedAbout(command) && needsApproval(found) ? askingOfTable(found) : null,
  }
}

/** For files that do not exist, `authorize` has nothing to ask about. The table asks nevertheless. */
const askingOfTable = (found: MatchedGrant<AllowEntry>): ExplainedAsking => {
  const { approvers, approvals_needed } = found.entry.asking
  return { human: found.grant.ask, why: whyAsked(found), always_ask: null, approvers, approvals_needed, may_last: false }
}

const outcome = (
  verdict: Verdict,
  asksOfTable: ExplainedAsking | null,
): Pick<Explanation, 'allowed' | 'reason' | 'detail' | 'run' | 'asks'> => {
  if (verdict.kind === 'denied') return { allowed: false, reason: verdict.reason, detail: verdict.detail, run: null, asks: null }
  if (verdict.kind === 'ask') return { allowed: false, reason: null, detail: null, run: null, asks: askingOf(verdict.question) }
  if (verdict.kind === 'files') return { allowed: asksOfTable === null, reason: null, detail: null, run: null, asks: asksOfTable }
  const { executable, cwd, caps, confinement } = verdict.permit
  return { allowed: true, reason: null, detail: null, run: { executable: executable.path, cwd, caps, confinement }, asks: null }
}

const askingOf = (request: ApprovalRequest): ExplainedAsking => {
  const { approvers, always_ask, ask, why, grant_sha256 } = request
  return {
    human: approvers === null || always_ask !== null || ask !== 'off',
    why,
    always_ask,
    approvers: approvers?.agent_ids ?? [],
    approvals_needed: approvers?.needed ?? 0,
    may_last: grant_sha256 !== null && ask !== 'always',
  }
}

const gatesOf = (verdict: Verdict, asks: boolean): Explanation['gates'] => {
  const stop = verdict.kind === 'denied' ? GATES.indexOf(verdict.gate) : asks ? GATES.indexOf('approval') : GATES.length
  return GATES.map((gate, at) => ({
    gate,
    result: at < stop ? 'pass' : at > stop ? 'not_reached' : asks ? 'ask' : 'deny',
  }))
}

const places = ({ acl, argv }: ExplainRequest, verdict: Verdict): Pick<Explanation, 'matched' | 'nearest'> => {
  const miss = verdict.kind === 'denied' ? verdict.nearest : null
  const place = verdict.kind === 'files' ? null : verdict.place
  return {
    matched: place && placeOf(acl, place),
    nearest: miss && { ...placeOf(acl, miss), token: miss.token, why: describeMismatch(miss, argv) },
  }
}

const placeOf = (acl: Acl, { entry, command }: MatchedCommand): ExplainedCommand => ({
  entry: acl.allow.indexOf(entry),
  command: entry.commands.includes(command) ? entry.commands.indexOf(command) : entry.asking.patterns.findIndex((one) => one === command),
  pattern: !entry.commands.includes(command),
  description: entry.description,
  discoverable: entry.discoverable,
  line: command.line,
  argv: command.argv,
  terminal: command.terminal,
  record: command.record,
  watch: command.watch,
})

/** The result as text, one line each, the verdict first. */
export const explanationText = (explanation: Explanation, argv: readonly string[]): string => {
  const { allowed, reason, detail, matched, nearest, grant, run, asks, source } = explanation
  const verdict = allowed ? 'allowed ' : asks === null ? 'denied  ' : 'asks    '
  // The options of a file command do not change the decision.
  const lines = [`${verdict} ${quoteArgv(isFileCommand(argv) ? argv.slice(0, 2) : argv)}`]
  if (reason !== null) lines.push(`reason   ${reason}`)
  if (detail !== null) lines.push(`why      ${detail}`)
  if (asks) lines.push(...askingText(asks))
  if (matched) lines.push(`matched  ${placeText(matched, source)}`)
  if (matched) lines.push(`listed   ${matched.discoverable ? 'yes: its entry is discoverable' : 'no: its entry is not discoverable'}`)
  if (matched?.terminal === true) lines.push(`terminal ${terminalText(matched)}`)
  if (grant) lines.push(...grantText(grant, source))
  if (nearest) lines.push(`nearest  ${placeText(nearest, source)}`)
  if (run) {
    lines.push(`runs     ${run.executable} in ${run.cwd}`)
    lines.push(`limits   ${limitsText(run.caps)}`)
    lines.push(`confined ${confinementText(run.confinement)}`)
  }
  const gates = explanation.gates.map(({ gate, result }) =>
    result === 'pass' ? gate : result === 'deny' ? `${gate} DENIES` : result === 'ask' ? `${gate} ASKS` : `(${gate})`,
  )
  lines.push(`gates    ${gates.join(' > ')}`, 'assumed  the sender is verified, trust accepts it, and no other run is going on')
  return lines.join('\n')
}

const terminalText = ({ record, watch }: ExplainedCommand): string =>
  ['allowed', ...(record ? ['runs are recorded'] : []), ...(watch ? ['operators may look on'] : [])].join(', ')

const askingText = ({ human, why, approvers, approvals_needed, may_last }: ExplainedAsking): string[] => [
  `why      ${why}`,
  ...(human ? [`approval by an approver of this machine, ${may_last ? 'once or for longer' : 'each time'}`] : []),
  ...(approvers.length === 0 ? [] : [`agents   ${approvals_needed} of ${approvers.join(', ')} must allow it each time`]),
]

const grantText = ({ discoverable, line, root, description, ...grant }: ExplainedGrant, source: string | null): string[] => [
  `matched  ${source ?? 'the ACL'}:${line}: root ${quote(root)} of ${quote(description)}`,
  `listed   ${discoverable ? 'yes: its entry is discoverable' : 'no: its entry is not discoverable'}`,
  `rights   ${(['read', 'write', 'create_dirs'] as const).filter((key) => grant[key]).join(', ')}`,
  ...(grant.write ? [`limits   ${writeLimitsText(grant)}`] : []),
]

const writeLimitsText = ({ max_file_bytes, max_total_bytes, mode, owner }: Omit<FileGrant, 'root' | 'line'>): string =>
  [
    `${max_file_bytes} B per file`,
    ...(max_total_bytes === null ? [] : [`${max_total_bytes} B below the root`]),
    `mode ${octal(mode)}`,
    ...(owner === null ? [] : [`owner ${owner}`]),
  ].join(', ')

const placeText = (place: ExplainedCommand, source: string | null): string =>
  `${source ?? 'the ACL'}:${place.line}: ${quoteArgv(place.argv)} of ${quote(place.description)}`

const limitsText = (caps: RunCaps): string => {
  const time = `${caps.timeout_ms} ms${caps.timeout_clamped ? ' (clamped to the limit)' : ''}`
  const kept = caps.keep_bytes === null ? '' : `, outlives its caller and keeps ${caps.keep_bytes} B of output`
  return `${time}, stdout ${caps.max_stdout_bytes} B, stderr ${caps.max_stderr_bytes} B, stdin ${caps.max_stdin_bytes === 0 ? 'closed' : `${caps.max_stdin_bytes} B`}${kept}`
}
