import { isAbsolute } from 'node:path'
import { findMetacharacter, parseToken } from '../../protocol/argv-template.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import type { ApprovalRequest as AskedQuestion } from '../approval/approval.ts'
import { scrubbedEnvironment } from '../environment.ts'
import { opaqueNote } from '../escapes.ts'
import type { RunCaps } from '../permit.ts'
import { Slots } from '../slots.ts'
import { quote, quoteArgv } from '../tokens.ts'
import type { Acl } from './acl.ts'
import { GATES, type Gate, type Verdict, authorize } from './authorize.ts'
import { type Confinement, confinementText } from './confinement.ts'
import type { Intent } from './intent.ts'
import { type MatchedCommand, describeMismatch } from './match.ts'

/** A question about a file: what would happen if this agent on this machine, proven and trusted, asked this now? */
export interface ExplainRequest {
  readonly acl: Acl
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly argv: readonly string[]
  readonly stdin_len?: number | null
  readonly timeout_ms?: number | null
  readonly cwd?: string | null
  readonly clamp?: boolean
  /** It is to outlive its caller. */
  readonly detach?: boolean
}

/** A command of the file. Indices count from 0, lines from 1. */
export interface ExplainedCommand {
  readonly entry: number
  readonly command: number
  /** It is one of `ask_patterns`: what a human may allow. */
  readonly pattern: boolean
  readonly description: string
  /** Its pair is told of it. */
  readonly discoverable: boolean
  readonly line: number
  readonly argv: readonly string[]
}

/** The answer, in the shape that `--json` prints. */
export interface Explanation {
  readonly allowed: boolean
  readonly reason: DenialReason | null
  readonly detail: string | null
  readonly gates: readonly { readonly gate: Gate; readonly result: 'pass' | 'ask' | 'deny' | 'not_reached' }[]
  /** The command that matched. */
  readonly matched: ExplainedCommand | null
  /** Where none matched: the command that agrees for longest, and the token that does not. */
  readonly nearest: (ExplainedCommand & { readonly token: number; readonly why: string }) | null
  /** What would run. */
  readonly run: {
    readonly executable: string
    readonly cwd: string
    readonly caps: RunCaps
    readonly confinement: Confinement
  } | null
  /** Who must allow it first; null: nobody, the file decides. */
  readonly asks: ExplainedAsking | null
  readonly source: string | null
}

/** What a question about the run would say. */
export interface ExplainedAsking {
  /** A human of this host is asked. */
  readonly human: boolean
  readonly why: string
  /** The reason of the list that always asks. */
  readonly always_ask: string | null
  readonly approvers: readonly AgentId[]
  readonly approvals_needed: number
  /** It may be allowed for longer than once. */
  readonly may_last: boolean
}

/** Asks the function that the daemon asks, beside its slots: nothing runs and none is taken. */
export const explain = (question: ExplainRequest): Explanation => {
  const { acl, agent_id, machine_id, argv } = question
  const intent: Intent = {
    argv,
    cwd: question.cwd ?? null,
    stdin_len: question.stdin_len ?? null,
    timeout_ms: question.timeout_ms ?? null,
    clamp: question.clamp ?? false,
    detach: question.detach === true ? { lifetime_ms: null, keep_bytes: null } : null,
  }
  const principal = { kind: 'mesh', agent_id, machine_id, verified: true, trust: 'accept' } as const
  const verdict = authorize(intent, principal, { acl, slots: new Slots(acl.caps), env: scrubbedEnvironment() })
  return Object.freeze({ ...outcome(verdict), gates: gatesOf(verdict), ...places(question, verdict), source: acl.source })
}

const outcome = (verdict: Verdict): Pick<Explanation, 'allowed' | 'reason' | 'detail' | 'run' | 'asks'> => {
  if (verdict.kind === 'denied') return { allowed: false, reason: verdict.reason, detail: verdict.detail, run: null, asks: null }
  if (verdict.kind === 'ask') return { allowed: false, reason: null, detail: null, run: null, asks: askingOf(verdict.question) }
  const { executable, cwd, caps, confinement } = verdict.permit
  return { allowed: true, reason: null, detail: null, run: { executable: executable.path, cwd, caps, confinement }, asks: null }
}

const askingOf = (question: AskedQuestion): ExplainedAsking => {
  const { approvers, always_ask, ask, why, grant_sha256 } = question
  return {
    human: approvers === null || always_ask !== null || ask !== 'off',
    why,
    always_ask,
    approvers: approvers?.agent_ids ?? [],
    approvals_needed: approvers?.needed ?? 0,
    may_last: grant_sha256 !== null && ask !== 'always',
  }
}

const gatesOf = (verdict: Verdict): Explanation['gates'] => {
  const stop = verdict.kind === 'denied' ? GATES.indexOf(verdict.gate) : verdict.kind === 'ask' ? GATES.indexOf('approval') : GATES.length
  return GATES.map((gate, at) => ({
    gate,
    result: at < stop ? 'pass' : at > stop ? 'not_reached' : verdict.kind === 'ask' ? 'ask' : 'deny',
  }))
}

const places = ({ acl, argv }: ExplainRequest, { place, ...verdict }: Verdict): Pick<Explanation, 'matched' | 'nearest'> => {
  const miss = verdict.kind === 'denied' ? verdict.nearest : null
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
})

/** The answer for a reader; one line each, the verdict first. */
export const explanationText = (explanation: Explanation, argv: readonly string[]): string => {
  const { allowed, reason, detail, matched, nearest, run, asks, source } = explanation
  const verdict = allowed ? 'allowed ' : asks === null ? 'denied  ' : 'asks    '
  const lines = [`${verdict} ${quoteArgv(argv)}`]
  if (reason !== null) lines.push(`reason   ${reason}`)
  if (detail !== null) lines.push(`why      ${detail}`)
  if (asks) lines.push(...askingText(asks))
  if (matched) lines.push(`matched  ${placeText(matched, source)}`)
  if (matched) lines.push(`told     ${matched.discoverable ? 'yes: its entry is discoverable' : 'no: its entry is not discoverable'}`)
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

const askingText = ({ human, why, approvers, approvals_needed, may_last }: ExplainedAsking): string[] => [
  `why      ${why}`,
  ...(human ? [`human    of this host must allow it, ${may_last ? 'once or for longer' : 'each time'}`] : []),
  ...(approvers.length === 0 ? [] : [`agents   ${approvals_needed} of ${approvers.join(', ')} must allow it each time`]),
]

const placeText = (place: ExplainedCommand, source: string | null): string =>
  `${source ?? 'the ACL'}:${place.line}: ${quoteArgv(place.argv)} of ${quote(place.description)}`

const limitsText = (caps: RunCaps): string => {
  const time = `${caps.timeout_ms} ms${caps.timeout_clamped ? ' (clamped to the cap)' : ''}`
  const kept = caps.keep_bytes === null ? '' : `, outlives its caller and keeps ${caps.keep_bytes} B of output`
  return `${time}, stdout ${caps.max_stdout_bytes} B, stderr ${caps.max_stderr_bytes} B, stdin ${caps.max_stdin_bytes === 0 ? 'closed' : `${caps.max_stdin_bytes} B`}${kept}`
}

/** Whom an entry is for. */
export interface SuggestedFor {
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly description: string
}

/** Why no entry can allow exactly this; null: one can. */
export const unsuggestable = (argv: readonly string[]): string | null => {
  if (argv.some((text) => !text.isWellFormed())) return 'it is no Unicode text'
  const meta = findMetacharacter(argv)
  if (meta !== null) return `token ${meta.token} contains ${JSON.stringify(meta.character)}, which every request is refused for`
  const [program = ''] = argv
  if (argv.length > 0 && (program === '' || (program.includes('/') && !isAbsolute(program))))
    return 'its program is no absolute path and no bare name'
  const slot = argv.find((text) => typeof parseToken(text) === 'string' || (parseToken(text) as { kind: string }).kind !== 'literal')
  return argv.length === 0 || slot !== undefined
    ? `it has ${slot === undefined ? 'no program' : `${slot}, which means more in a file`}`
    : null
}

/** What an operator should know before allowing it, stdin being closed. */
export const suggestionWarnings = (argv: readonly string[]): string[] => {
  const note = argv[0] === undefined ? null : opaqueNote(argv[0], false)
  return note === null ? [] : [note]
}

const tomlEscape = (character: string): string => `\\U${character.codePointAt(0)!.toString(16).padStart(8, '0')}`

/**
 * A word of TOML on one line, whatever a stranger put in it: only ASCII that shows itself stands there as it is, for no letter
 * looks like another and none turns a line around. A JSON string is a basic string of TOML but for DEL.
 */
const tomlText = (text: string): string => JSON.stringify(text).replaceAll(/[^ -~]/gu, tomlEscape)

/** An entry that allows this argv to the pair and nothing else, and tells the pair of it: no slot, no stdin. */
export const entryText = ({ agent_id, machine_id, description }: SuggestedFor, argv: readonly string[]): string => `
[[exec.allow]]
description = ${tomlText(description)}
agent_id = ${tomlText(agent_id)}
machine_id = ${tomlText(machine_id)}
discoverable = true

[[exec.allow.commands]]
argv = [${argv.map(tomlText).join(', ')}]
stdin = false
`
