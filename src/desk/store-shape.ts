import { AppError } from '../base/errors.ts'
import { versionProblem } from '../base/file-version.ts'
import { closedProblemOf, fits, listUpTo, textUpTo, wholeUpTo } from '../protocol/closed-fields.ts'
import {
  MAX_ALLOWLIST,
  MAX_GRANTS,
  MAX_LAST_USED_COMMAND,
  MAX_PATTERN,
  MAX_QUESTION_TEXT,
  MAX_STORE_AGENTS,
} from '../protocol/desk-limits.ts'
import { agentName, grantCheck, overrideCheck, type Grant, type ModeOverride } from '../protocol/desk.ts'
import { fallbackText, askText, securityText } from '../protocol/desk-question.ts'
import { flag, isTable, isText, orMissing, tableOf, type Checked, type FieldCheck } from '../protocol/field-checks.ts'
import { parseTable } from '../protocol/json-shape.ts'
import { fromBase64 } from '../protocol/text.ts'

/** Of the token that engines and desk share. */
const TOKEN_BYTES = { least: 32, most: 64 } as const
/** Arrays and objects, as deep as the grants and patterns of agents are. */
const STORE_SHAPE = { depth: 6, values: 2_000_000 } as const

const PATTERN_FIELDS = {
  /** A glob over the resolved path of the executable. */
  pattern: textUpTo(MAX_PATTERN, 1),
  /** The operator knows that programs of the pattern may run others. */
  opaque: orMissing(flag),
  lastUsedAt: orMissing(wholeUpTo(Number.MAX_SAFE_INTEGER)),
  lastUsedCommand: orMissing(textUpTo(2 * MAX_LAST_USED_COMMAND)),
  lastResolvedPath: orMissing(textUpTo(MAX_QUESTION_TEXT)),
}
export type AllowedPattern = Pick<Checked<typeof PATTERN_FIELDS>, 'pattern'> & Partial<Checked<typeof PATTERN_FIELDS>>

const AGENT_FIELDS = {
  security: orMissing(securityText),
  ask: orMissing(askText),
  askFallback: orMissing(fallbackText),
  allowlist: orMissing(listUpTo(tableOf(PATTERN_FIELDS), MAX_ALLOWLIST)),
}
type WholeAgent = Checked<typeof AGENT_FIELDS>
export type StoreAgent = Partial<Omit<WholeAgent, 'allowlist'>> & { readonly allowlist?: readonly AllowedPattern[] | undefined }

/** A table whose keys are names of agents: their ids, or the labels of local ones. */
const byAgent = <T>(check: FieldCheck<T>): FieldCheck<Readonly<Record<string, T>>> => ({
  is: (value) =>
    isTable(value) &&
    Object.keys(value).length <= MAX_STORE_AGENTS &&
    Object.entries(value).every(([name, one]) => fits(name, agentName) && fits(one, check)),
  parts: (value) =>
    Object.entries(isTable(value) ? value : {}).flatMap(([name, one]) => {
      const quoted = JSON.stringify(name.slice(0, 64))
      return [[`: ${quoted}`, name, agentName] as const, [/^[\w-]{1,64}$/.test(name) ? `.${name}` : `[${quoted}]`, one, check] as const]
    }),
  what: `a table of at most ${MAX_STORE_AGENTS} agents`,
})

const isToken = (value: unknown): boolean => {
  const bytes = isText(value) ? fromBase64(value) : null
  return bytes !== null && bytes.length >= TOKEN_BYTES.least && bytes.length <= TOKEN_BYTES.most
}

const token: FieldCheck<string> = { is: isToken, what: 'the base64 of 32 to 64 random bytes' }

const STORE_VERSION = 1

const STORE_FIELDS = {
  version: wholeUpTo(STORE_VERSION, STORE_VERSION),
  socket: tableOf({
    path: textUpTo(MAX_QUESTION_TEXT, 1),
    token,
  }),
  defaults: tableOf({ security: securityText, ask: askText, askFallback: fallbackText }),
  agents: byAgent(tableOf(AGENT_FIELDS)),
  /** Exact permits that may run again without a question. */
  grants: orMissing(listUpTo(grantCheck, MAX_GRANTS)),
  /** Modes that release 0.2 saved for agents. They do not count, and an agent that has some may run nothing until they are gone. */
  modes: orMissing(byAgent(overrideCheck)),
}

/** `exec-approvals.json`. */
export interface Store extends Omit<Checked<typeof STORE_FIELDS>, 'agents' | 'grants' | 'modes'> {
  readonly agents: Readonly<Record<string, StoreAgent>>
  readonly grants: readonly Grant[]
  readonly modes?: Readonly<Record<string, ModeOverride>> | undefined
}

/** Throws `bad_approvals` for anything else than a store. `file` is for the message. */
export const readStore = (bytes: Uint8Array, file: string): Store => {
  const bad = (problem: string): AppError => new AppError('bad_approvals', `${file}: ${problem}`, { data: { file } })
  const fields = parseTable(bytes, STORE_SHAPE)
  if (typeof fields === 'string') throw bad(fields)
  const other = 'version' in fields ? versionProblem(fields['version'], STORE_VERSION) : null
  const problem = other === null ? closedProblemOf(fields, STORE_FIELDS) : `version: ${other}`
  if (problem !== null) throw bad(problem)
  const store = fields as unknown as Checked<typeof STORE_FIELDS>
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
