import { AppError } from '../base/errors.ts'
import { versionProblem } from '../base/file-version.ts'
import {
  MAX_ALLOWLIST,
  MAX_GRANTS,
  MAX_LAST_USED_COMMAND,
  MAX_PATTERN,
  MAX_QUESTION_TEXT,
  MAX_STORE_AGENTS,
} from '../protocol/desk-limits.ts'
import { askText, fallbackText, securityText } from '../protocol/desk-question.ts'
import { type Grant, agentName, grantCheck, overrideCheck } from '../protocol/desk.ts'
import { parseTable } from '../protocol/json-shape.ts'
import {
  type Field,
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
import { fromBase64 } from '../protocol/text.ts'

/** Of the token that engines and desk share. */
const TOKEN_BYTES = { least: 32, most: 64 } as const
/** Arrays and objects, as deep as the grants and patterns of agents are. */
const STORE_SHAPE = { depth: 6, values: 2_000_000 } as const

const PATTERN_FIELDS = {
  /** A glob over the resolved path of the executable. */
  pattern: textUpTo(MAX_PATTERN, 1),
  /** The operator knows that programs of the pattern may run others. */
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

/** A table whose keys are names of agents: their ids, or the labels of local ones. */
const byAgent = <T>(value: Field<T>): Field<Readonly<Record<string, T>>> => map(agentName, value, { max: MAX_STORE_AGENTS })

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
  /** Exact permits that may run again without a question. */
  grants: optional(listUpTo(grantCheck, MAX_GRANTS)),
  /** Modes that release 0.2 saved for agents. They do not count, and an agent that has some may run nothing until they are gone. */
  modes: optional(byAgent(overrideCheck)),
}

/** `exec-approvals.json`. */
export interface Store extends Sent<typeof STORE_FIELDS> {
  readonly grants: readonly Grant[]
}

/** Throws `bad_approvals` for anything else than a store. `file` is for the message. */
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

/** As the file has it: for people to read too. */
export const storeText = (store: Store): string => `${JSON.stringify(store, null, 2)}\n`

/** The first one: nothing is allowed, and every miss is asked about. */
export const newStore = (socketPath: string, token: Uint8Array): Store => ({
  version: STORE_VERSION,
  socket: { path: socketPath, token: Buffer.from(token).toString('base64') },
  defaults: { security: 'deny', ask: 'on-miss', askFallback: 'deny' },
  agents: {},
  grants: [],
})
