import { provenAgent } from '../../protocol/desk/approval-request.ts'
import { grantBounds } from '../../protocol/limits/approvals.ts'
import { type Ask, type AskFallback, type Security, isGivenLabel, stricterAsk, stricterFallback, stricterSecurity } from '../modes.ts'
import type { ApprovalRequest } from './approval.ts'
import { matchesPath, parsePathPattern, tooWide } from './path-pattern.ts'

/** The store's settings for one agent. Null means the default of the store. */
export interface StoredAgent {
  readonly security: Security | null
  readonly ask: Ask | null
  /** Has effect only if it is stricter than the default. */
  readonly ask_fallback: AskFallback | null
  readonly allowlist: readonly StoredPattern[]
}

/** A pattern of programs that an agent may run without an approval request. */
export interface StoredPattern {
  readonly pattern: string
  /** True if the operator allowed the pattern for opaque programs, which may run others. */
  readonly opaque?: boolean | undefined
}

/** A permission for several runs. */
export interface StoredGrant {
  readonly id: string
  readonly grant_sha256: string
  readonly created_at_ms: number
  /** Upper limits. A run with a longer timeout or more output is not covered. Absent means the grant covers no run. */
  readonly timeout_ms?: number | undefined
  readonly max_output_bytes?: number | undefined
  readonly expires_at_ms: number
  /** Remaining uses. Null means any number until it expires. */
  readonly uses_left: number | null
}

/** A complete and valid copy of the store, on which decisions are based. */
export interface StoreSnapshot {
  readonly defaults: { readonly security: Security; readonly ask: Ask; readonly ask_fallback: AskFallback }
  /** Settings by the label of a local agent or the ID of a mesh agent. */
  readonly agents: Readonly<Record<string, StoredAgent>>
  readonly grants: readonly StoredGrant[]
  /** Home directory, written as `~` in patterns. */
  readonly home: string
}

export type Judgement =
  /** `by` is the field of the answer. `grant_id` names the grant that this uses. */
  | { readonly kind: 'allow'; readonly by: string; readonly pattern: string | null; readonly grant_id: string | null }
  /** `mayLast`: true if a permission for longer would cover the same command. */
  | { readonly kind: 'ask'; readonly why: string; readonly mayLast: boolean }
  | { readonly kind: 'deny'; readonly reason: string }

/** Row for clients with an unproven label, because they choose it for each call or session. */
export const MAIN_AGENT = 'main'

/** The settings and patterns that apply to the requester. */
interface InForce {
  readonly security: Security
  readonly ask: Ask
  readonly fallback: AskFallback
  readonly patterns: readonly StoredPattern[]
}

const rowOf = ({ agents }: StoreSnapshot, name: string): StoredAgent | null => (Object.hasOwn(agents, name) ? (agents[name] ?? null) : null)

/** The name of the requester's row in the store. An unproven label can only narrow the rights of `main`. */
export const rowName = (request: Pick<ApprovalRequest, 'asker' | 'door' | 'target'>): string => {
  const { asker, door } = request
  if (asker.kind === 'mesh') return provenAgent(request) ?? asker.agent_id
  return isGiven(door) ? asker.label : MAIN_AGENT
}

const isGiven = (door: ApprovalRequest['door']): boolean => door !== 'mesh' && isGivenLabel(door)

const inForce = (request: ApprovalRequest, store: StoreSnapshot): InForce => {
  const { asker } = request
  const isMesh = asker.kind === 'mesh'
  const row = rowOf(store, rowName(request))
  // The name that a client gives itself, or another host of its requester, can only narrow.
  const said = rowOf(store, isMesh ? asker.agent_id : asker.label)
  const { security, ask } = isMesh ? request : store.defaults
  const fallbacks = [store.defaults, row, said].map((one) => one?.ask_fallback ?? request.ask_fallback)
  return {
    security: stricterSecurity(request.security, row?.security ?? security, said?.security ?? request.security),
    ask: stricterAsk(request.ask, row?.ask ?? ask, said?.ask ?? request.ask),
    fallback: stricterFallback(request.ask_fallback, ...fallbacks),
    patterns: isMesh ? [] : (row?.allowlist ?? []),
  }
}

const allow = (by: string, more: { pattern?: string; grant_id?: string } = {}): Judgement =>
  Object.freeze({ kind: 'allow', by, pattern: more.pattern ?? null, grant_id: more.grant_id ?? null })
const ask = (why: string, mayLast: boolean): Judgement => Object.freeze({ kind: 'ask', why, mayLast })
const deny = (reason: string): Judgement => Object.freeze({ kind: 'deny', reason })

/** Finds an exact grant. A grant of an opaque command never lasts longer than the limit for those. */
const granted = (request: ApprovalRequest, { grants }: StoreSnapshot, now: number): Judgement | null => {
  const { opaque } = request
  const { most } = grantBounds(opaque)
  const endOf = (one: StoredGrant): number => (opaque === null ? one.expires_at_ms : Math.min(one.expires_at_ms, one.created_at_ms + most))
  const grant = grants.find(
    (one) =>
      request.grant_sha256 !== null &&
      one.grant_sha256 === request.grant_sha256 &&
      request.timeout_ms <= (one.timeout_ms ?? -1) &&
      request.max_output_bytes <= (one.max_output_bytes ?? -1) &&
      endOf(one) > now &&
      (one.uses_left === null || one.uses_left > 0),
  )
  return grant === undefined ? null : allow(`grant:${grant.id}`, { grant_id: grant.id })
}

/** Checks that the patterns cover all programs of the command. For an opaque command, only patterns marked opaque count. */
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

const missText = (request: ApprovalRequest, { patterns }: InForce): string => {
  if (request.asker.kind === 'mesh') return request.why
  if (request.opaque !== null) return `no grant and no pattern with "opaque" allows it: ${request.opaque}`
  const count = patterns.length === 0 ? 'the allowlist is empty' : `none of ${patterns.length} patterns of the allowlist has all of it`
  return `${count}: ${request.programs.join(', ')}`
}

/**
 * Decides an approval request by the store. The stricter of request and store applies. Patterns and grants never answer a request with `ask
 * = "always"` or a command that an always-ask rule names. A command that might run such a command can be allowed by a grant, not by a
 * pattern. Pure.
 */
export const judge = (request: ApprovalRequest, store: StoreSnapshot, now: number): Judgement => {
  const force = inForce(request, store)
  if (force.security === 'deny') return deny('security is "deny" for this AI agent')
  const grant = granted(request, store, now)
  const { always_ask, grant_sha256 } = request
  if (always_ask !== null) {
    // If a rule names the command itself, the request has no digest for grants.
    const mayLast = request.opaque !== null && grant_sha256 !== null && force.ask !== 'always'
    return (mayLast ? grant : null) ?? ask(`it is on the list that always asks: ${always_ask}`, mayLast)
  }
  const isMesh = request.asker.kind === 'mesh'
  // The ACL says more precisely why it asks about a request of the mesh.
  if (force.ask === 'always') return ask(isMesh && request.ask === 'always' ? request.why : 'ask is "always" for this AI agent', false)
  if (force.security === 'full' && !isMesh) return allow('mode:full')
  const hit = grant ?? listed(request, force, store)
  if (hit !== null) return hit
  const miss = missText(request, force)
  // A mesh request is asked only if the ACL says so.
  return force.ask === 'on-miss' || isMesh ? ask(miss, grant_sha256 !== null) : deny(`${miss}; ask is "off"`)
}

/** Decides if no approver is connected. Denies mesh requests and requests that always need an approver. */
export const judgeFallback = (request: ApprovalRequest, store: StoreSnapshot, now: number): Judgement => {
  const force = inForce(request, store)
  if (
    request.always_ask !== null ||
    request.asker.kind === 'mesh' ||
    request.approvers !== null ||
    force.security === 'deny' ||
    force.ask === 'always'
  )
    return deny('no approver is connected, and the command needs approval each time')
  switch (force.fallback) {
    case 'deny':
      return deny('no approver is connected, and the fallback is "deny"')
    case 'allowlist':
      return (
        granted(request, store, now) ??
        listed(request, force, store) ??
        deny(`no approver is connected, the fallback is "allowlist", and ${missText(request, force)}`)
      )
    case 'full':
      return allow('fallback:full')
  }
}
