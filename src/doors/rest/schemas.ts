import * as z from 'zod'
import { SELECTED_HOSTS } from '../../protocol/api-answers.ts'
import * as fields from '../../protocol/api-fields.ts'
import { ATTACHED_EVENTS, ATTACHED_OUTPUT, RAW_ATTACHED_EVENTS, WAITED } from '../../protocol/api/attached-events.ts'
import { SHOWN_RUN } from '../../protocol/api/detached-run.ts'
import { FANOUT_EVENTS, FANOUT_RESULT, PERCENTAGE } from '../../protocol/api/fanout.ts'
import { RULES } from '../../protocol/api/rules.ts'
import { ERROR_TOLD, RAW_RUN_EVENTS, RUN_EVENTS, RUN_RESULT } from '../../protocol/api/run-events.ts'
import { LIFECYCLE_FIELDS, LIFECYCLE_TYPES } from '../../protocol/events/lifecycle.ts'
import { type FieldTable, oneOf, orNull, text, time, yes } from '../../protocol/json-table.ts'
import { MAX_WAITED_RUNS } from '../../protocol/limits/detached.ts'
import { MAX_ENROL_ACL, MAX_ENROL_MS, MAX_ENROL_NAMES, MAX_ENROL_USES, MIN_ENROL_MS } from '../../protocol/limits/enrolment.ts'
import { MAX_SESSION_NAME } from '../../protocol/limits/events.ts'
import { MAX_FANOUT_HOSTS, MAX_FANOUT_PARALLEL, MAX_HOST_WORDS } from '../../protocol/limits/fleet.ts'
import { MAX_ADDRESS_TEXT, MAX_CARD_ADDRESSES, MAX_NAME, MAX_STDIN_BYTES, MAX_STDIN_PIECES, MAX_TEXT } from '../../protocol/limits/wire.ts'
import { DENIAL_REASONS, TRUST_DECISIONS, TRUST_LEVELS } from '../../protocol/reasons.ts'
import { nullIsAbsent } from '../null-is-absent.ts'
import { shapeOf, zodFor, zodOf } from '../zod-of.ts'

/** Bodies of the REST interface. Unknown keys are errors. The OpenAPI document is made from the same schemas. */

export const hexId = zodFor(fields.hexId)
export const requestId = zodFor(fields.requestId)
export const base64 = zodFor(fields.base64)
export const agentName = z
  .string()
  .min(1)
  .max(MAX_NAME)
  .describe('64 hex characters, a unique prefix of at least 6, or the name of a contact')

/** Many clients send null for an absent field. */
export const optional = <T extends z.ZodType>(type: T) => type.nullish().transform((value) => value ?? undefined)

export const sessionName = z
  .string()
  .regex(new RegExp(`^[\\w.:-]{1,${MAX_SESSION_NAME}}$`))
  .describe(`a run label, 1 to ${MAX_SESSION_NAME} letters, digits, "_", ".", ":" or "-"; it selects the events of its runs`)

export const argv = z.array(z.string().refine((token) => token.isWellFormed(), 'not valid Unicode')).min(1)
export const clamp = optional(z.boolean()).describe('if timeout_ms exceeds the limit of the target, run with the limit and warn')

/** A request names its agent with exactly one of the two. */
const target = { agent_id: optional(hexId), agent: optional(agentName) }

/** Absent fields take the value in the target's ACL. */
const detach = z.strictObject({
  lifetime_ms: optional(z.int().min(1)).describe('maximum duration of the run'),
  keep_bytes: optional(z.int().min(1)).describe('maximum bytes of stored output; further bytes are counted and dropped'),
})

export const runRequest = z
  .strictObject({
    ...target,
    argv,
    stdin_b64: optional(base64),
    stdin_len: optional(z.int().min(0).max(MAX_STDIN_BYTES).describe('with a streamed body: total bytes of stdin')),
    stdin_sha256: optional(z.array(hexId).min(1).max(MAX_STDIN_PIECES)).describe(
      'with a streamed body: SHA-256 of each MiB of stdin, as hex; the last piece may be shorter',
    ),
    timeout_ms: optional(z.int().min(1)),
    cwd: optional(z.string().max(MAX_TEXT)),
    clamp,
    request_id: optional(requestId),
    session: optional(sessionName),
    detach: optional(z.union([z.boolean(), detach])).describe('start a detached run and answer at once'),
  })
  .meta({ id: 'RunRequest' })
export type RunRequest = z.infer<typeof runRequest>

/** Each line of a streamed body after the first. */
export const stdinLine = z.strictObject({ stdin_b64: base64 })

export const rulesQuery = z.strictObject({
  agent_id: hexId.optional(),
  agent: agentName.optional(),
})

export const eventsQuery = z.strictObject({
  session: sessionName.optional(),
  since: z
    .string()
    .regex(/^([0-9a-f]{12}\.)?[0-9]{1,15}$/)
    .describe('an event number, or the `next` or ID of an earlier answer; returns only later events')
    .optional(),
})

export const outputQuery = z.strictObject({ request_id: requestId })
/** Exactly one of the two. */
export const cancelRequest = z.strictObject({
  request_id: optional(requestId),
  fanout_id: optional(requestId).describe('cancels all hosts of this fan-out: running commands end, and no more start'),
})
export type CancelRequest = z.infer<typeof cancelRequest>
export const connectRequest = z.strictObject(target)
export const sendRequest = nullIsAbsent(
  z.strictObject({
    ...target,
    payload_b64: base64,
    content_type: z
      .string()
      .max(MAX_NAME)
      .refine((type) => type.isWellFormed() && Buffer.byteLength(type) <= MAX_NAME, `not valid Unicode, or more than ${MAX_NAME} bytes`)
      .default('application/octet-stream'),
  }),
)

const contact = agentName
export const cardImport = z.strictObject({
  card: z.string(),
  name: optional(z.string().min(1).max(MAX_NAME)),
  rename: optional(z.boolean().describe('rename an existing contact; otherwise a different name is a conflict')),
  trust_level: optional(z.enum(TRUST_LEVELS)),
})
export const contactMeet = z.strictObject({
  name: z.string().min(1).max(MAX_NAME),
  agent_id: hexId,
  machine_id: hexId,
  addresses: z.array(z.string().max(MAX_ADDRESS_TEXT)).max(MAX_CARD_ADDRESSES),
})
export const contactTrust = z.strictObject({ contact, level: z.enum(TRUST_LEVELS) })
export const contactPin = z.strictObject({ contact, machine_id: hexId })
export const contactRemove = z.strictObject({ contact })
export const identityRevoke = z.strictObject({ machine_id: hexId.nullable().describe('machine to revoke; null for the agent key itself') })

const jsonValue = z.json().meta({ id: 'JsonValue' })

/** Data of an error for programs. Further keys depend on the error code. */
const errorData = z
  .object({
    next: z.string().optional().describe('what to do next'),
    agent_id: hexId.optional(),
    machine_id: hexId.optional(),
    addresses: z.array(jsonValue).optional().describe('addresses that were tried'),
    candidates: z
      .array(z.strictObject({ agent_id: hexId, name: z.string().nullable() }))
      .optional()
      .describe('agents that match the name'),
    denial_reason: z.enum(DENIAL_REASONS).nullable().optional(),
    may_run: z.boolean().optional().describe('true if the command may have started'),
  })
  .catchall(jsonValue)
  .meta({ id: 'ErrorData' })

/** Fields of a table; `data` gets the schema of error data. */
const answerShape = (stated: FieldTable) => ({ ...shapeOf(stated), ...(Object.hasOwn(stated, 'data') && { data: errorData.optional() }) })

/** A union of messages by `type`. Types that share a table become one alternative. */
export const eventOf = (events: Readonly<Record<string, FieldTable>>) => {
  const names = Map.groupBy(Object.keys(events), (name) => events[name]!)
  const [first, ...rest] = [...names].map(([stated, types]) =>
    z.strictObject({ type: types.length === 1 ? z.literal(types[0]!) : z.enum(types), ...answerShape(stated) }),
  )
  return z.discriminatedUnion('type', [first!, ...rest])
}

export const runEvent = eventOf(RUN_EVENTS).meta({ id: 'RunEvent' })

/** A line of a streamed answer whose output follows as bytes. */
export const rawRunEvent = eventOf(RAW_RUN_EVENTS).meta({ id: 'RawRunEvent' })

export const runResult = zodOf(RUN_RESULT).meta({ id: 'RunResult' })

export const directEvent = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('message'),
      request_id: requestId,
      from_agent: hexId,
      from_machine: hexId,
      decision: z.enum(TRUST_DECISIONS),
      content_type: z.string(),
      payload_b64: base64,
      received_at: z.iso.datetime(),
    }),
    z.strictObject({ type: z.literal('lagged') }),
  ])
  .meta({ id: 'DirectEvent' })

const lifecycle = zodOf({
  ...LIFECYCLE_FIELDS,
  type: oneOf(LIFECYCLE_TYPES),
  ts: time,
  owner: text.says('this agent, which requested the run'),
  session: orNull(text),
  run_id: fields.requestId,
  node: fields.hexId,
  denial_reason: orNull(text),
  text: text.says('the event as a sentence, without the tail'),
}).meta({ id: 'LifecycleEvent' })

/** `through` null: the client's number is not of this log, or the daemon was restarted. */
const gap = z.strictObject({
  through: z.int().nullable().describe('events up to this one are no longer stored; null if since is not known, such as after a restart'),
})

export const eventsItem = z.union([lifecycle, gap.extend({ type: z.literal('gap') })])

export const events = z
  .strictObject({
    ok: z.literal(true),
    events: z.array(lifecycle),
    gap: gap.nullable(),
    next: z.string().describe('value of since for the next call'),
    more: z.boolean().describe('more events are available now'),
  })
  .meta({ id: 'LifecycleEvents' })

export const rules = zodOf(RULES).meta({ id: 'Rules' })

export const failure = z.strictObject({ ok: z.literal(false), ...answerShape(ERROR_TOLD) }).meta({ id: 'Error' })

export const runOutput = z
  .strictObject({
    ok: z.literal(true),
    request_id: requestId,
    tail: z
      .string()
      .nullable()
      .describe('end of both streams in order of arrival, at most 20,000 characters (untrusted text); null if the run has not started'),
    tail_truncated: z.boolean(),
  })
  .meta({ id: 'RunOutput' })

export const openapiDocument = z.looseObject({ openapi: z.string() })

/** A boolean query parameter. */
export const flag = z.enum(['true', 'false']).transform((value) => value === 'true')

export const runsQuery = z.strictObject({
  refresh: flag.optional().describe('ask the hosts of runs whose end is unknown'),
  session: sessionName.optional().describe('only runs with this label'),
})
export const runQuery = runsQuery.pick({ refresh: true })
export const runParams = z.strictObject({ request_id: requestId })

export const attachQuery = z.strictObject({
  from: z
    .string()
    .regex(/^[0-9]{1,15}$/)
    .describe('a whole number of at least 0')
    .transform(Number)
    .optional()
    .describe('first byte to return, counted over both streams as they were written; default 0'),
  follow: flag.optional().describe('continue with new output until the run ends; default true'),
})

export const runsWait = z.strictObject({
  request_ids: z.array(requestId).min(1).max(MAX_WAITED_RUNS),
  timeout_ms: optional(z.int().min(1)).describe('answer by then even if runs have not ended'),
})
export const runCancel = z.strictObject({ request_id: requestId })
export const runForget = z.strictObject({
  request_id: requestId,
  here: optional(z.boolean()).describe('forget it on this machine only; the target keeps its output'),
})

const detachedRun = zodOf(SHOWN_RUN).meta({ id: 'DetachedRun' })

export const runs = z.strictObject({ ok: z.literal(true), runs: z.array(detachedRun) })
export const oneRun = zodOf({ ok: yes, ...SHOWN_RUN })
export const waitedRuns = z.strictObject({
  ok: z.literal(true),
  runs: z.array(zodOf({ ...SHOWN_RUN, ...WAITED })).describe('in the order of request_ids'),
})

export const attachedOutput = zodOf(ATTACHED_OUTPUT).meta({ id: 'AttachedOutput' })

export const attachedEvent = eventOf(ATTACHED_EVENTS).meta({ id: 'AttachedEvent' })
/** A line of the output of a detached run whose bytes follow it. */
export const rawAttachedEvent = eventOf(RAW_ATTACHED_EVENTS).meta({ id: 'RawAttachedEvent' })

/** The executor checks the values. */
export const enrolCreate = z.strictObject({
  salt: hexId.describe('random; the secret of the key is derived from it and operator.key'),
  operator_name: z.string().min(1).max(MAX_NAME).describe('name of this agent for the hosts'),
  uses: z.int().min(1).max(MAX_ENROL_USES).describe('maximum number of hosts that can use the key'),
  expires_in_ms: z.int().min(MIN_ENROL_MS).max(MAX_ENROL_MS),
  names: optional(z.string().max(MAX_ENROL_NAMES)).describe('node set of the names for hosts, such as web[1-50]; default: their own names'),
  labels: optional(z.record(z.string(), z.string())).describe('labels of the hosts'),
  acl: optional(z.string().max(MAX_ENROL_ACL)).describe('ACL entries for the hosts, with agent and machine of this daemon'),
})
export const enrolList = z.strictObject({})
export const enrolRevoke = z.strictObject({
  id: z
    .string()
    .regex(/^[0-9a-f]{4,16}$/)
    .describe('ID of the key, or a unique prefix'),
})

/** The executor checks the labels themselves. */
export const contactLabel = z.strictObject({
  contact: agentName,
  labels: z.record(z.string(), z.string().nullable()).describe('null removes the label'),
})

export const hostTerm = z
  .string()
  .max(MAX_HOST_WORDS)
  .describe('a name, an ID, a node set such as web[1-20,30], @group, key=value, or several separated by commas; ! before one excludes it')

/** `?expr=a&expr=b`. A single value is not a list. */
export const selectQuery = z.strictObject({
  expr: z
    .union([hostTerm, z.array(hostTerm).min(1).max(MAX_FANOUT_HOSTS)])
    .describe('host words')
    .transform((words) => (typeof words === 'string' ? [words] : words)),
})

export const selectedHosts = zodOf(SELECTED_HOSTS).meta({ id: 'SelectedHosts' })

export const fanoutRequest = z
  .strictObject({
    hosts: z.array(hostTerm).min(1).max(MAX_FANOUT_HOSTS).describe('a list of host words'),
    argv,
    stdin_b64: optional(base64).describe('stdin of the command, for each host'),
    timeout_ms: optional(z.int().min(1)).describe('timeout of the command, for each host'),
    clamp,
    cwd: optional(z.string().max(MAX_TEXT)),
    parallel: optional(z.int().min(1).max(MAX_FANOUT_PARALLEL)).describe('maximum number of hosts at once'),
    canary: optional(z.int().min(0)).describe('number of first hosts that must all end with code 0 before the others start'),
    max_failures: optional(
      z.union([z.int().min(1), z.string().regex(PERCENTAGE)]).describe('a whole number of at least 1, or a part of the hosts such as "5%"'),
    ).describe('no more hosts start after that many hosts without code 0'),
    deadline_ms: optional(z.int().min(1)).describe('time limit for all hosts; then no more start, and running commands are cancelled'),
    session: optional(sessionName),
    fanout_id: optional(requestId),
    request_ids: optional(z.record(hexId, requestId)).describe('request IDs of some hosts, by agent ID'),
  })
  .meta({ id: 'FanoutRequest' })
export type FanoutRequest = z.infer<typeof fanoutRequest>

export const fanoutEvent = eventOf(FANOUT_EVENTS).meta({ id: 'FanoutEvent' })

export const fanoutResult = zodOf(FANOUT_RESULT).meta({ id: 'FanoutResult' })
