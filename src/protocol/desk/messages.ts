import { isVisible } from '../../base/visible-text.ts'
import { type LifecycleEvent, lifecycleProblem } from '../events/lifecycle.ts'
import { parseTable } from '../json-shape.ts'
import {
  type FieldTable,
  type Sent,
  closedProblemOf,
  fits,
  flag,
  isText,
  listUpTo,
  matching,
  oneOf,
  optional,
  orNull,
  record,
  table,
  tested,
  text,
  textUpTo,
  wholeUpTo,
  withoutNulls,
} from '../json-table.ts'
import {
  DESK_SHAPE,
  MAX_DESK_CONNECTIONS,
  MAX_DESK_NAME,
  MAX_FOLLOWED_RUNS,
  MAX_GRANT_MS,
  MAX_GRANT_USES,
  MAX_HISTORY,
  MAX_PATTERN,
  MAX_QUESTION_TEXT,
  MAX_RUN_NAME,
  MAX_SESSION_NAME,
} from '../limits/approvals.ts'
import {
  ANSWER_FIELDS,
  DECISIONS,
  QUESTION_FIELDS,
  answerCheck,
  askText,
  hostText,
  questionCheck,
  securityText,
  sha256Text,
} from './approval-request.ts'

/**
 * The approval protocol (proto/desk.md) has lines of JSON over a socket. The service sends `hello`. All later lines in both directions
 * are sealed bodies. `proto/desk-vectors.json` has examples of all.
 */
export const DESK_VERSION = 3

export const DESK_ROLES = ['engine', 'human'] as const
export type DeskRole = (typeof DESK_ROLES)[number]
export type DeskDirection = 'to_desk' | 'from_desk'

const id = wholeUpTo(Number.MAX_SAFE_INTEGER, 1)
const time = wholeUpTo(Number.MAX_SAFE_INTEGER)
const questionId = ANSWER_FIELDS.question_id
const grantId = matching(/^g_[A-Za-z0-9_-]{22}$/, 'the ID of a grant')
const session = textUpTo(MAX_SESSION_NAME, 1)
const anyLabel = textUpTo(MAX_QUESTION_TEXT, 1)
/** Name of an agent in the store. A row named "*" would look as if it applied to all agents. */
export const agentName = tested<string>(
  (value) => fits(value, anyLabel) && value !== '__proto__' && value !== '*',
  `the name of one agent, of at most ${MAX_QUESTION_TEXT} characters (settings for all agents: "defaults")`,
)
const question = questionCheck
/** Name of a run, as `runOf` makes it. */
const run = textUpTo(MAX_RUN_NAME, 1)
const followed = listUpTo(run, MAX_FOLLOWED_RUNS)
const event = tested<LifecycleEvent>((value) => lifecycleProblem(value) === null, 'an event of a run')

/** Modes that an approver sets for a session, or null for the configured mode. `elevated` takes precedence over the others. */
const MODE_FIELDS = {
  host: orNull(hostText),
  security: orNull(securityText),
  ask: orNull(askText),
  node: orNull(textUpTo(MAX_SESSION_NAME, 1)),
  elevated: orNull(oneOf(['on', 'ask', 'full'])),
}
export type ModeOverride = Sent<typeof MODE_FIELDS>
const override = record(MODE_FIELDS)
export const overrideCheck = override

/** Settings that an approver saves in an agent's row. Null leaves the row's setting. */
const ROW_FIELDS = { security: orNull(securityText), ask: orNull(askText) }
export type RowSettings = Sent<typeof ROW_FIELDS>

/** Modes set for a session until the service ends. */
export interface SessionModes {
  readonly session: string
  readonly override: ModeOverride
  readonly by: string
  readonly set_at_ms: number
}

/** Modes of all sessions, the latest last, and of agents' rows. Older ones may be omitted. `left_out` counts them. */
export interface AllModes {
  readonly sessions: readonly SessionModes[]
  readonly saved: readonly ({ readonly agent: string } & RowSettings)[]
  readonly left_out: number
}

const PENDING_FIELDS = {
  question_id: questionId,
  question,
  asked_at_ms: time,
  expires_at_ms: time,
  /** Name that the requesting executor gives itself. */
  engine: text,
  /** Decisions that the service accepts for it. */
  decisions: listUpTo(oneOf(DECISIONS), DECISIONS.length, 1),
}
export type PendingApprovalRequest = Sent<typeof PENDING_FIELDS>

/** Requests of one requester beyond its rate limit. They are denied and counted. */
const FLOOD_FIELDS = { asker: text, count: wholeUpTo(Number.MAX_SAFE_INTEGER, 1), last_at_ms: time }
export type Flood = Sent<typeof FLOOD_FIELDS>

const GRANT_FIELDS = {
  id: grantId,
  grant_sha256: sha256Text,
  /** ID of an agent, or label of a local one. */
  agent: agentName,
  argv: QUESTION_FIELDS.argv,
  executable: QUESTION_FIELDS.executable,
  cwd: QUESTION_FIELDS.cwd,
  created_at_ms: time,
  expires_at_ms: time,
  /** Upper limits of the grant. A store of an earlier version has no limits, and its grants do not apply. */
  timeout_ms: optional(time),
  max_output_bytes: optional(time),
  /** Null for any number until it expires. */
  uses_left: orNull(wholeUpTo(MAX_GRANT_USES)),
  by: text,
  last_used_at_ms: orNull(time),
}
export type Grant = Sent<typeof GRANT_FIELDS>
export const grantCheck = record(GRANT_FIELDS)

/** It appears in the log and in messages to others, so it must not contain characters that could imitate other text. */
const name = tested<string>(
  (value) => isText(value) && value.length > 0 && value.length <= MAX_DESK_NAME && isVisible(value),
  `a name of 1 to ${MAX_DESK_NAME} visible characters`,
)
const OPEN = { type: oneOf(['open']), role: oneOf(DESK_ROLES), name }

/** Executor to service. */
const FROM_ENGINE = {
  open: OPEN,
  ask: { type: oneOf(['ask']), id, question },
  withdraw: { type: oneOf(['withdraw']), id },
  event: { type: oneOf(['event']), event },
  /** A run that was already running when this executor connected. It causes no notification. Approval clients may follow it. */
  running: { type: oneOf(['running']), event },
  override_get: { type: oneOf(['override_get']), id, session, agent: orNull(agentName) },
} satisfies Readonly<Record<string, FieldTable>>

/** Approval client to service. Each has an ID, which its result or error repeats. */
const FROM_APPROVAL_CLIENT = {
  open: OPEN,
  subscribe: { type: oneOf(['subscribe']), id },
  /** Follows the output of exactly these runs, until the next such message. */
  follow: { type: oneOf(['follow']), id, runs: followed },
  /** Receives run events only. This client does not count as an approver who could decide. */
  listen: { type: oneOf(['listen']), id },
  pending: { type: oneOf(['pending']), id },
  decide: {
    type: oneOf(['decide']),
    id,
    question_id: questionId,
    permit_sha256: sha256Text,
    decision: oneOf(DECISIONS),
    expires_in_ms: optional(wholeUpTo(MAX_GRANT_MS, 1)),
    uses: optional(wholeUpTo(MAX_GRANT_USES, 1)),
  },
  store: { type: oneOf(['store']), id },
  grants: { type: oneOf(['grants']), id },
  revoke: { type: oneOf(['revoke']), id, grant_id: grantId },
  /** With `opaque`, the approver accepts that programs of the pattern may run others. */
  allowlist_add: { type: oneOf(['allowlist_add']), id, agent: agentName, pattern: textUpTo(MAX_PATTERN, 1), opaque: optional(flag) },
  allowlist_remove: { type: oneOf(['allowlist_remove']), id, agent: agentName, pattern: textUpTo(MAX_PATTERN, 1) },
  history: { type: oneOf(['history']), id, limit: wholeUpTo(MAX_HISTORY, 1) },
  modes_get: { type: oneOf(['modes_get']), id, session: orNull(session), agent: orNull(agentName) },
  modes_list: { type: oneOf(['modes_list']), id },
  modes_set: { type: oneOf(['modes_set']), id, session, override: orNull(override) },
  modes_save: { type: oneOf(['modes_save']), id, agent: agentName, row: orNull(record(ROW_FIELDS)) },
} satisfies Readonly<Record<string, FieldTable>>

const OPENED = { type: oneOf(['opened']), role: oneOf(DESK_ROLES) }
/** `code` is from the error table. `won_by` is the approver of an earlier decision, and `decision` is that decision. */
const ERROR = {
  type: oneOf(['error']),
  id: orNull(id),
  code: text,
  message: text,
  won_by: optional(text),
  decision: optional(text),
}

/** Service to executor. */
const TO_ENGINE = {
  opened: OPENED,
  pending: { type: oneOf(['pending']), id, question_id: questionId, expires_at_ms: time },
  answer: { type: oneOf(['answer']), id, answer: answerCheck },
  override: { type: oneOf(['override']), id, override: orNull(override) },
  /** The runs that are followed from now on. The executor sends their present output and further output as it is written. */
  follow: { type: oneOf(['follow']), runs: listUpTo(run, MAX_FOLLOWED_RUNS * MAX_DESK_CONNECTIONS.human) },
  error: ERROR,
} satisfies Readonly<Record<string, FieldTable>>

/** Service to approval client. `result` is the reply to the request with this ID. The others are sent unrequested after `subscribe`. */
const TO_APPROVAL_CLIENT = {
  opened: OPENED,
  result: { type: oneOf(['result']), id, result: table },
  error: ERROR,
  question: { type: oneOf(['question']), ...PENDING_FIELDS },
  settled: { type: oneOf(['settled']), question_id: questionId, decision: text, by: text },
  flood: { type: oneOf(['flood']), ...FLOOD_FIELDS },
  event: { type: oneOf(['event']), event },
} satisfies Readonly<Record<string, FieldTable>>

type BodyOf<T extends Readonly<Record<string, FieldTable>>> = { [K in keyof T]: Sent<T[K]> }[keyof T]

export type EngineBody = BodyOf<typeof FROM_ENGINE>
export type ApprovalClientBody = BodyOf<typeof FROM_APPROVAL_CLIENT>
/** A decision about exactly the permit that was displayed. */
export type HumanDecision = Omit<Extract<ApprovalClientBody, { type: 'decide' }>, 'type' | 'id'>
export type ToEngineBody = BodyOf<typeof TO_ENGINE>
export type ToApprovalClientBody = BodyOf<typeof TO_APPROVAL_CLIENT>

const read = <B>(bytes: Uint8Array, kinds: Readonly<Record<string, FieldTable>>): B | string => {
  const fields = parseTable(bytes, DESK_SHAPE)
  if (typeof fields === 'string') return fields
  const { type } = fields
  const checks = typeof type === 'string' && Object.hasOwn(kinds, type) ? kinds[type] : undefined
  if (checks === undefined) return 'its type is unknown'
  const given = withoutNulls(fields, checks)
  return closedProblemOf(given, checks) ?? (given as B)
}

/** Each returns the body, or says what is wrong with it. */
export const readEngineBody = (bytes: Uint8Array): EngineBody | string => read(bytes, FROM_ENGINE)
export const readApprovalClientBody = (bytes: Uint8Array): ApprovalClientBody | string => read(bytes, FROM_APPROVAL_CLIENT)
export const readToEngineBody = (bytes: Uint8Array): ToEngineBody | string => read(bytes, TO_ENGINE)
export const readToApprovalClientBody = (bytes: Uint8Array): ToApprovalClientBody | string => read(bytes, TO_APPROVAL_CLIENT)

const HELLO_FIELDS = {
  type: oneOf(['hello']),
  version: wholeUpTo(DESK_VERSION, DESK_VERSION),
  nonce: matching(/^[A-Za-z0-9_-]{43}$/, '32 bytes in base64url'),
}

/** The nonce of the service's first line, or a description of the error. */
export const readHello = (line: Uint8Array): { readonly nonce: string } | string => {
  const fields = parseTable(line, DESK_SHAPE)
  if (typeof fields === 'string') return fields
  const { type, version } = fields
  if (type === 'hello' && typeof version === 'number' && version !== DESK_VERSION)
    return `it uses version ${version} of the prompt protocol, and this program version ${DESK_VERSION}: restart the older of the two`
  return closedProblemOf(fields, HELLO_FIELDS) ?? { nonce: String(fields['nonce']) }
}

/** A line after `hello`. */
const SEALED_FIELDS = {
  body: text,
  nonce: matching(/^[A-Za-z0-9_-]{22}$/, '16 bytes in base64url'),
  ts: time,
  mac: sha256Text,
}
export type SealedLine = Sent<typeof SEALED_FIELDS>

/** The unverified parts of a sealed line, or a description of the error. */
export const readSealed = (line: Uint8Array): SealedLine | string => {
  const fields = parseTable(line, DESK_SHAPE)
  if (typeof fields === 'string') return fields
  return closedProblemOf(fields, SEALED_FIELDS) ?? (fields as SealedLine)
}

/** Input of a line's MAC. `body_sha256` is the digest of the UTF-8 body in hex. */
export const sealedText = (
  role: DeskRole,
  direction: DeskDirection,
  { server_nonce, nonce, ts, body_sha256 }: { server_nonce: string; nonce: string; ts: number; body_sha256: string },
): string => `x0x-desk-v1\n${role}\n${direction}\n${server_nonce}\n${nonce}\n${ts}\n${body_sha256}`

/** The approval clients' key is the HMAC of this text under the operator key. */
export const APPROVAL_CLIENT_KEY_TEXT = 'x0x-desk-human-v1'
