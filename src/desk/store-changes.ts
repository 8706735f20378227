import { AppError } from '../base/errors.ts'
import { MAX_ALLOWLIST, MAX_GRANTS, MAX_LAST_USED_COMMAND, MAX_STORE_AGENTS } from '../protocol/desk-limits.ts'
import type { Grant, RowSettings } from '../protocol/desk.ts'
import type { AllowedPattern, Store, StoreAgent } from './store-shape.ts'

/** What was last run by a grant or a pattern. */
export interface LastUse {
  /** Whose row it is. */
  readonly agent: string
  readonly pattern: string | null
  readonly grant_id: string | null
  readonly at_ms: number
  readonly command: string
  readonly path: string
}

const agentsWith = (store: Store, name: string, agent: StoreAgent): Store => {
  if (!Object.hasOwn(store.agents, name) && Object.keys(store.agents).length >= MAX_STORE_AGENTS)
    throw new AppError('resource_limit', `the store names ${MAX_STORE_AGENTS} agents already`)
  return { ...store, agents: { ...store.agents, [name]: agent } }
}

const rowOf = (store: Store, name: string): StoreAgent => (Object.hasOwn(store.agents, name) ? store.agents[name]! : {})

/** Without what has expired, or was used up: it allows nothing any more. */
const living = (grants: readonly Grant[], now: number): readonly Grant[] =>
  grants.filter(({ expires_at_ms, uses_left }) => expires_at_ms > now && uses_left !== 0)

export const withGrant = (store: Store, grant: Grant, now: number): Store => {
  const grants = living(store.grants, now).filter(({ grant_sha256 }) => grant_sha256 !== grant.grant_sha256)
  if (grants.length >= MAX_GRANTS)
    throw new AppError('resource_limit', `the store has ${MAX_GRANTS} grants: revoke what is not needed (x0x approvals revoke)`)
  return { ...store, grants: [...grants, grant] }
}

/** Null: it is not there, or has no use left. */
export const withUse = (store: Store, grantId: string, now: number): Store | null => {
  const grant = store.grants.find(({ id }) => id === grantId)
  if (grant === undefined || grant.expires_at_ms <= now || grant.uses_left === 0) return null
  const used = { ...grant, uses_left: grant.uses_left === null ? null : grant.uses_left - 1, last_used_at_ms: now }
  return { ...store, grants: store.grants.map((one) => (one === grant ? used : one)) }
}

/** Null: it is not there. */
export const withoutGrant = (store: Store, grantId: string): Store | null =>
  store.grants.some(({ id }) => id === grantId) ? { ...store, grants: store.grants.filter(({ id }) => id !== grantId) } : null

/** `opaque`: it counts for programs that may run others; so it does from then on where the row has it already. Null: it is there. */
export const withPattern = (store: Store, name: string, pattern: string, opaque: boolean): Store | null => {
  const row = rowOf(store, name)
  const allowlist = row.allowlist ?? []
  const known = allowlist.find((one) => one.pattern === pattern)
  if (known !== undefined) {
    if (!opaque || known.opaque === true) return null
    return agentsWith(store, name, { ...row, allowlist: allowlist.map((one) => (one === known ? { ...one, opaque } : one)) })
  }
  if (allowlist.length >= MAX_ALLOWLIST)
    throw new AppError('resource_limit', `the allowlist of ${name} has ${MAX_ALLOWLIST} patterns already`)
  return agentsWith(store, name, { ...row, allowlist: [...allowlist, opaque ? { pattern, opaque } : { pattern }] })
}

export const withoutPattern = (store: Store, name: string, pattern: string): Store | null => {
  const row = rowOf(store, name)
  const allowlist = (row.allowlist ?? []).filter((one) => one.pattern !== pattern)
  return allowlist.length === (row.allowlist ?? []).length ? null : agentsWith(store, name, { ...row, allowlist })
}

/**
 * Writes what `row` says into the row of an agent. Null takes back what was saved: modes of release 0.2 if there are some, else
 * `security` and `ask` of the row.
 */
export const withSaved = (store: Store, name: string, row: RowSettings | null): Store => {
  const { [name]: old, ...others } = store.modes ?? {}
  const next = { ...store, modes: Object.keys(others).length === 0 ? undefined : others }
  if (row === null && old !== undefined) return next
  const { security, ask, ...rest } = rowOf(store, name)
  if (row === null) return agentsWith(next, name, rest)
  return agentsWith(next, name, { ...rest, security: row.security ?? security, ask: row.ask ?? ask })
}

const used = (entry: AllowedPattern, { at_ms, command, path }: LastUse): AllowedPattern => ({
  ...entry,
  lastUsedAt: at_ms,
  lastUsedCommand: command.slice(0, MAX_LAST_USED_COMMAND),
  lastResolvedPath: path,
})

/** Only what is still there: a pattern that was removed, or a grant that was revoked, is not brought back. Null: nothing of it is. */
export const withLastUses = (store: Store, uses: readonly LastUse[]): Store | null => {
  let next = store
  for (const use of uses) {
    const { agent, pattern, grant_id: grantId, at_ms: at } = use
    const row = rowOf(next, agent)
    if (pattern !== null && row.allowlist?.some((one) => one.pattern === pattern) === true)
      next = agentsWith(next, agent, { ...row, allowlist: row.allowlist.map((one) => (one.pattern === pattern ? used(one, use) : one)) })
    if (grantId !== null && next.grants.some(({ id }) => id === grantId))
      next = { ...next, grants: next.grants.map((one) => (one.id === grantId ? { ...one, last_used_at_ms: at } : one)) }
  }
  return next === store ? null : next
}
