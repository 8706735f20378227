import { constants } from 'node:fs'
import { type FileHandle, open } from 'node:fs/promises'
import { AppError, errnoOf, isMissing } from '../base/errors.ts'
import { assertOursAlone } from '../base/file-permissions.ts'
import { versionProblem, writeFileAtomic } from '../base/files.ts'
import { sha256 } from '../identity/hash.ts'
import { type Grant, type RowSettings, agentName, grantCheck, overrideCheck } from '../protocol/desk/messages.ts'
import { askText, fallbackText, securityText } from '../protocol/desk/approval-request.ts'
import { toHex } from '../protocol/ids.ts'
import { parseTable } from '../protocol/json-shape.ts'
import {
  type JsonField,
  type Sent,
  closedProblemOf,
  flag,
  isText,
  listUpTo,
  map,
  optional,
  record,
  tested,
  textUpTo,
  wholeUpTo,
} from '../protocol/json-table.ts'
import {
  MAX_ALLOWLIST,
  MAX_GRANTS,
  MAX_LAST_USED_COMMAND,
  MAX_PATTERN,
  MAX_QUESTION_TEXT,
  MAX_STORE_AGENTS,
  MAX_STORE_BYTES,
} from '../protocol/limits/approvals.ts'
import { fromBase64 } from '../protocol/text.ts'

/** Length of the token that engines and the service share. */
const TOKEN_BYTES = { least: 32, most: 64 } as const
/** As deep as the grants and patterns of agents. */
const STORE_SHAPE = { depth: 6, values: 2_000_000 } as const

const PATTERN_FIELDS = {
  /** A glob over the resolved path of the executable. */
  pattern: textUpTo(MAX_PATTERN, 1),
  /** The operator confirmed that programs of the pattern may run others. */
  opaque: optional(flag),
  lastUsedAt: optional(wholeUpTo(Number.MAX_SAFE_INTEGER)),
  lastUsedCommand: optional(textUpTo(2 * MAX_LAST_USED_COMMAND)),
  lastResolvedPath: optional(textUpTo(MAX_QUESTION_TEXT)),
}
export type AllowedPattern = Sent<typeof PATTERN_FIELDS>

const AGENT_FIELDS = {
  security: optional(securityText),
  ask: optional(askText),
  askFallback: optional(fallbackText),
  allowlist: optional(listUpTo(record(PATTERN_FIELDS), MAX_ALLOWLIST)),
}
export type StoreAgent = Sent<typeof AGENT_FIELDS>

/** A table by agent, with IDs of mesh agents or labels of local ones. */
const byAgent = <T>(value: JsonField<T>): JsonField<Readonly<Record<string, T>>> => map(agentName, value, { max: MAX_STORE_AGENTS })

const isToken = (value: unknown): boolean => {
  const bytes = isText(value) ? fromBase64(value) : null
  return bytes !== null && bytes.length >= TOKEN_BYTES.least && bytes.length <= TOKEN_BYTES.most
}

const token = tested<string>(isToken, 'the base64 of 32 to 64 random bytes')

const STORE_VERSION = 1

const STORE_FIELDS = {
  version: wholeUpTo(STORE_VERSION, STORE_VERSION),
  socket: record({
    path: textUpTo(MAX_QUESTION_TEXT, 1),
    token,
  }),
  defaults: record({ security: securityText, ask: askText, askFallback: fallbackText }),
  agents: byAgent(record(AGENT_FIELDS)),
  /** Exact permits that may run again without an approval. */
  grants: optional(listUpTo(grantCheck, MAX_GRANTS)),
  /** Modes that release 0.2 saved for agents. They have no effect. An agent with saved modes may run no command until they are removed. */
  modes: optional(byAgent(overrideCheck)),
}

/** The content of `exec-approvals.json`. */
export interface Store extends Sent<typeof STORE_FIELDS> {
  readonly grants: readonly Grant[]
}

/** Throws `bad_approvals` for invalid content. `file` is for the message. */
export const readStore = (bytes: Uint8Array, file: string): Store => {
  const bad = (problem: string): AppError => new AppError('bad_approvals', `${file}: ${problem}`, { data: { file } })
  const fields = parseTable(bytes, STORE_SHAPE)
  if (typeof fields === 'string') throw bad(fields)
  const other = 'version' in fields ? versionProblem(fields['version'], STORE_VERSION) : null
  const problem = other === null ? closedProblemOf(fields, STORE_FIELDS) : `version: ${other}`
  if (problem !== null) throw bad(problem)
  const store = fields as unknown as Sent<typeof STORE_FIELDS>
  return { ...store, grants: store.grants ?? [] }
}

export const tokenBytes = ({ socket }: Pick<Store, 'socket'>): Uint8Array => new Uint8Array(fromBase64(socket.token) ?? [])

/** The text of the file, indented for people. */
export const storeText = (store: Store): string => `${JSON.stringify(store, null, 2)}\n`

/** The first store, which allows no run and asks on every miss. */
export const newStore = (socketPath: string, token: Uint8Array): Store => ({
  version: STORE_VERSION,
  socket: { path: socketPath, token: Buffer.from(token).toString('base64') },
  defaults: { security: 'deny', ask: 'on-miss', askFallback: 'deny' },
  agents: {},
  grants: [],
})

const PRIVATE = 0o600

/** A store on disk, with the means to detect a change. */
export interface StoredStore {
  readonly store: Store
  /** Device, inode, size and times of the file, which change with its content. */
  readonly identity: string
  /** SHA-256 of the file's bytes, hex. */
  readonly sha256: string
}

const bad = (file: string, problem: string, cause?: unknown): AppError =>
  new AppError('bad_approvals', `${file}: ${problem}`, { cause, data: { file } })

const openStore = async (path: string): Promise<FileHandle> => {
  try {
    // A link may lead to a file of another user, and opening a named pipe would block.
    return await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK)
  } catch (error) {
    if (isMissing(error)) throw new AppError('not_found', `${path} is missing`, { cause: error, data: { file: path } })
    if (errnoOf(error) === 'ELOOP') throw bad(path, 'it is a symbolic link; use a regular file', error)
    throw bad(path, `it cannot be opened (${errnoOf(error) ?? 'unknown'})`, error)
  }
}

const identityOf = async (file: FileHandle): Promise<{ readonly identity: string; readonly size: number; readonly isFile: boolean }> => {
  const info = await file.stat({ bigint: true })
  const identity = [info.dev, info.ino, info.size, info.mtimeNs, info.ctimeNs, info.mode, info.uid].join('.')
  return { identity, size: Number(info.size), isFile: info.isFile() }
}

/**
 * Reads the store through the descriptor that was checked. Returns `known` if the file is unchanged. Throws `not_found`, `bad_approvals`
 * for a link, invalid content or a file that is too large, and `loose_permissions` if other users can read or write it.
 */
export const loadStore = async (path: string, known: StoredStore | null = null): Promise<StoredStore> => {
  const file = await openStore(path)
  try {
    const { identity, size, isFile } = await identityOf(file)
    if (identity === known?.identity) return known
    if (!isFile) throw bad(path, 'it is not a regular file; move it away')
    assertOursAlone(path, await file.stat(), PRIVATE)
    if (size > MAX_STORE_BYTES) throw bad(path, `it has ${size} bytes, where ${MAX_STORE_BYTES} are allowed`)
    const bytes = await file.readFile()
    if ((await identityOf(file)).identity !== identity) throw bad(path, 'it changed while it was read')
    return { store: readStore(bytes, path), identity, sha256: toHex(sha256(bytes)) }
  } finally {
    await file.close()
  }
}

/**
 * Replaces the file atomically, with mode 0600. `announce` logs the change once there is space for it, and throws to prevent it. Throws
 * `conflict` if the file no longer is `before`, so that a revocation by another process stays in force.
 */
export const replaceStore = async (
  path: string,
  before: StoredStore,
  next: Store,
  announce: () => Promise<void> = async () => undefined,
): Promise<StoredStore> => {
  const text = storeText(next)
  if (Buffer.byteLength(text) > MAX_STORE_BYTES)
    throw new AppError('resource_limit', `${path} would have more than ${MAX_STORE_BYTES} bytes; revoke grants that are not needed`)
  // Checks that it can be read again.
  readStore(Buffer.from(text), path)
  const same = async (): Promise<void> => {
    const there = await loadStore(path, before)
    if (there.sha256 !== before.sha256) throw new AppError('conflict', `${path} was changed by another program; try again`)
  }
  await same()
  await writeFileAtomic(path, text, PRIVATE, async () => {
    await announce()
    await same()
  })
  return loadStore(path)
}

/** The last command that a grant or a pattern allowed. */
export interface LastUse {
  /** Name of the agent's row. */
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

/** Drops grants that have expired or are used up. */
const living = (grants: readonly Grant[], now: number): readonly Grant[] =>
  grants.filter(({ expires_at_ms, uses_left }) => expires_at_ms > now && uses_left !== 0)

export const withGrant = (store: Store, grant: Grant, now: number): Store => {
  const grants = living(store.grants, now).filter(({ grant_sha256 }) => grant_sha256 !== grant.grant_sha256)
  if (grants.length >= MAX_GRANTS)
    throw new AppError('resource_limit', `the store has ${MAX_GRANTS} grants: revoke some (x0x approvals revoke)`)
  return { ...store, grants: [...grants, grant] }
}

/** Null if the grant is missing or used up. */
export const withUse = (store: Store, grantId: string, now: number): Store | null => {
  const grant = store.grants.find(({ id }) => id === grantId)
  if (grant === undefined || grant.expires_at_ms <= now || grant.uses_left === 0) return null
  const used = { ...grant, uses_left: grant.uses_left === null ? null : grant.uses_left - 1, last_used_at_ms: now }
  return { ...store, grants: store.grants.map((one) => (one === grant ? used : one)) }
}

export const withoutGrant = (store: Store, grantId: string): Store | null =>
  store.grants.some(({ id }) => id === grantId) ? { ...store, grants: store.grants.filter(({ id }) => id !== grantId) } : null

/** With `opaque`, the pattern also covers programs that may run others. An existing pattern is extended. Null if the store is unchanged. */
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

/** Saves modes into the row of an agent. Null removes any modes of release 0.2, else `security` and `ask` of the row. */
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

/** Skips patterns and grants that were removed. Null if all were removed. */
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
