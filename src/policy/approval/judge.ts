import { provenAgent } from '../../protocol/desk/approval-request.ts'
import { grantBounds } from '../../protocol/limits/approvals.ts'
import { type Ask, type AskFallback, type Security, isGivenLabel, stricterAsk, stricterFallback, stricterSecurity } from '../modes.ts'
import type { ApprovalRequest } from './approval.ts'
import { matchesPath, parsePathPattern, tooWide } from './path-pattern.ts'

/** What the store says of one agent; null: what its defaults say. */
export interface StoredAgent {
  readonly security: Security | null
  readonly ask: Ask | null
  /** Counts where it is stricter than that of the defaults. */
  readonly ask_fallback: AskFallback | null
  readonly allowlist: readonly StoredPattern[]
}

/** Programs that an agent may run without a question. */
export interface StoredPattern {
  readonly pattern: string
  /** True where the operator said that it counts for programs that may run others. */
  readonly opaque?: boolean | undefined
}

/** What was allowed for more than once. */
export interface StoredGrant {
  readonly id: string
  readonly grant_sha256: string
  readonly created_at_ms: number
  /** Ceilings: a longer run, or one with more output, is another. Absent: it covers nothing. */
  readonly timeout_ms?: number | undefined
  readonly max_output_bytes?: number | undefined
  readonly expires_at_ms: number
  /** Null: any number until then. */
  readonly uses_left: number | null
}

/** The store as it is judged by: read whole, and sound. */
export interface StoreSnapshot {
  readonly defaults: { readonly security: Security; readonly ask: Ask; readonly ask_fallback: AskFallback }
  /** By the label of a local agent, or the id of one of the mesh. */
  readonly agents: Readonly<Record<string, StoredAgent>>
  readonly grants: readonly StoredGrant[]
  /** What `~` means. */
  readonly home: string
}

export type Judgement =
  /** `by`: as it stands in the answer. `grant_id`: of the grant that this use is of. */
  | { readonly kind: 'allow'; readonly by: string; readonly pattern: string | null; readonly grant_id: string | null }
  /** `mayLast`: what a human allows for longer would count for the same command. */
  | { readonly kind: 'ask'; readonly why: string; readonly mayLast: boolean }
  | { readonly kind: 'deny'; readonly reason: string }

/** The row of callers whose label says nothing, because they choose it with each call or session. */
export const MAIN_AGENT = 'main'

/** What is in force for who asks: the rows of the store, and the patterns that count for it. */
interface InForce {
  readonly security: Security
  readonly ask: Ask
  readonly fallback: AskFallback
  readonly patterns: readonly StoredPattern[]
}

const rowOf = ({ agents }: StoreSnapshot, name: string): StoredAgent | null => (Object.hasOwn(agents, name) ? (agents[name] ?? null) : null)

/** The name by which the store knows who asks; a label that counts not in full can but narrow what `main` has. */
export const rowName = (question: Pick<ApprovalRequest, 'asker' | 'door' | 'target'>): string => {
  const { asker, door } = question
  if (asker.kind === 'mesh') return provenAgent(question) ?? asker.agent_id
  return isGiven(door) ? asker.label : MAIN_AGENT
}

const isGiven = (door: ApprovalRequest['door']): boolean => door !== 'mesh' && isGivenLabel(door)

const inForce = (question: ApprovalRequest, store: StoreSnapshot): InForce => {
  const { asker } = question
  const isMesh = asker.kind === 'mesh'
  const row = rowOf(store, rowName(question))
  // What a caller says of itself, or another host of its requester, can but narrow.
  const said = rowOf(store, isMesh ? asker.agent_id : asker.label)
  const { security, ask } = isMesh ? question : store.defaults
  const fallbacks = [store.defaults, row, said].map((one) => one?.ask_fallback ?? question.ask_fallback)
  return {
    security: stricterSecurity(question.security, row?.security ?? security, said?.security ?? question.security),
    ask: stricterAsk(question.ask, row?.ask ?? ask, said?.ask ?? question.ask),
    fallback: stricterFallback(question.ask_fallback, ...fallbacks),
    patterns: isMesh ? [] : (row?.allowlist ?? []),
  }
}

const allow = (by: string, more: { pattern?: string; grant_id?: string } = {}): Judgement =>
  Object.freeze({ kind: 'allow', by, pattern: more.pattern ?? null, grant_id: more.grant_id ?? null })
const ask = (why: string, mayLast: boolean): Judgement => Object.freeze({ kind: 'ask', why, mayLast })
const deny = (reason: string): Judgement => Object.freeze({ kind: 'deny', reason })

/** An exact grant. One of an opaque command ends by the bound of such grants, whatever it says. */
const granted = (question: ApprovalRequest, { grants }: StoreSnapshot, now: number): Judgement | null => {
  const { opaque } = question
  const { most } = grantBounds(opaque)
  const endOf = (one: StoredGrant): number => (opaque === null ? one.expires_at_ms : Math.min(one.expires_at_ms, one.created_at_ms + most))
  const grant = grants.find(
    (one) =>
      question.grant_sha256 !== null &&
      one.grant_sha256 === question.grant_sha256 &&
      question.timeout_ms <= (one.timeout_ms ?? -1) &&
      question.max_output_bytes <= (one.max_output_bytes ?? -1) &&
      endOf(one) > now &&
      (one.uses_left === null || one.uses_left > 0),
  )
  return grant === undefined ? null : allow(`grant:${grant.id}`, { grant_id: grant.id })
}

/** Patterns that have every program which the command names. Of an opaque command only those count that say so. */
const listed = ({ opaque, programs, target }: ApprovalRequest, { patterns }: InForce, { home }: StoreSnapshot): Judgement | null => {
  if (programs.length === 0 || target.host === 'node') return null
  const read = patterns.flatMap((one) => {
    const pattern = opaque === null || one.opaque === true ? parsePathPattern(one.pattern, home) : ''
    return typeof pattern === 'string' || tooWide(pattern) !== null ? [] : [pattern]
  })
  const hits = programs.map((program) => read.find((pattern) => matchesPath(pattern, program)))
  const [first] = hits
  return first !== undefined && hits.every((hit) => hit !== undefined) ? allow(`allowlist:${first.text}`, { pattern: first.text }) : null
}

const missText = (question: ApprovalRequest, { patterns }: InForce): string => {
  if (question.asker.kind === 'mesh') return question.why
  if (question.opaque !== null) return `no grant and no pattern with "opaque" allows it: ${question.opaque}`
  const count = patterns.length === 0 ? 'the allowlist is empty' : `none of ${patterns.length} patterns of the allowlist has all of it`
  return `${count}: ${question.programs.join(', ')}`
}

/**
 * What the store says of a question: the stricter of it and of the question counts. Pure. A command that a rule of
 * the list has, and `ask = "always"`, no pattern and no grant answers; what may run such a command, a grant alone.
 */
export const judge = (question: ApprovalRequest, store: StoreSnapshot, now: number): Judgement => {
  const force = inForce(question, store)
  if (force.security === 'deny') return deny('security is "deny" for who asks')
  const grant = granted(question, store, now)
  const { always_ask, grant_sha256 } = question
  if (always_ask !== null) {
    // Where a rule has the command itself, it has no digest for grants.
    const mayLast = question.opaque !== null && grant_sha256 !== null && force.ask !== 'always'
    return (mayLast ? grant : null) ?? ask(`it is on the list that always asks: ${always_ask}`, mayLast)
  }
  if (force.ask === 'always') return ask('ask is "always" for who asks', false)
  const isMesh = question.asker.kind === 'mesh'
  if (force.security === 'full' && !isMesh) return allow('mode:full')
  const hit = grant ?? listed(question, force, store)
  if (hit !== null) return hit
  const miss = missText(question, force)
  // Of the mesh nothing is asked that its ACL does not say.
  return force.ask === 'on-miss' || isMesh ? ask(miss, grant_sha256 !== null) : deny(`${miss}; ask is "off"`)
}

/** What decides if no approver is connected. What always asks, and what the mesh asks, is denied. */
export const judgeFallback = (question: ApprovalRequest, store: StoreSnapshot, now: number): Judgement => {
  const force = inForce(question, store)
  if (
    question.always_ask !== null ||
    question.asker.kind === 'mesh' ||
    question.approvers !== null ||
    force.security === 'deny' ||
    force.ask === 'always'
  )
    return deny('it needs a human each time')
  switch (force.fallback) {
    case 'deny':
      return deny('no approver is connected, and the fallback is "deny"')
    case 'allowlist':
      return (
        granted(question, store, now) ??
        listed(question, force, store) ??
        deny(`no approver is connected, the fallback is "allowlist", and ${missText(question, force)}`)
      )
    case 'full':
      return allow('fallback:full')
  }
}
