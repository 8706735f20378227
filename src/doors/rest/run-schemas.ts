import * as z from 'zod'

import { MAX_WAITED_RUNS } from '../../protocol/asked-limits.ts'
import { DENIAL_REASONS, DETACHED_STATES } from '../../protocol/reasons.ts'
import { base64, errorTold, hexId, optional, outcome, requestId, sessionName, started, warning } from './schemas.ts'

/** A flag behind a path. */
const flag = z.enum(['true', 'false']).transform((value) => value === 'true')

export const runsQuery = z.strictObject({
  refresh: flag.optional().describe('ask the host of each whose end is not known'),
  session: sessionName.optional().describe('only those that were asked for under this name'),
})
export const runQuery = runsQuery.pick({ refresh: true })
export const runParams = z.strictObject({ request_id: requestId })

export const outputQuery = z.strictObject({
  from: z
    .string()
    .regex(/^[0-9]{1,15}$/)
    .describe('a whole number of at least 0')
    .transform(Number)
    .optional()
    .describe('the first byte that is wanted, counted over both streams in the order in which they were written; default 0'),
  follow: flag.optional().describe('go on with what it writes until it is over; default true'),
})

export const runsWait = z.strictObject({
  request_ids: z.array(requestId).min(1).max(MAX_WAITED_RUNS),
  timeout_ms: optional(z.int().min(1)).describe('answer then, whatever has not ended'),
})
export const runCancel = z.strictObject({ request_id: requestId })
export const runForget = z.strictObject({
  request_id: requestId,
  here: optional(z.boolean()).describe('here alone: its host is not asked to let go of what it keeps'),
})

const kept = z.strictObject({
  bytes_kept: z.int().min(0),
  bytes_dropped: z.int().min(0).describe('beyond what is kept'),
  keep_bytes: z.int().min(0),
  lifetime_left_ms: z.int().min(0).nullable().describe('until it is ended; null: it does not run'),
  kept_for_ms: z.int().min(0).nullable().describe('until it is forgotten; null: it is not over'),
})

const shown = {
  request_id: requestId,
  agent_id: hexId,
  machine_id: hexId,
  agent: z.string().nullable().describe('what the operator calls the agent; null: it is no contact'),
  argv: z.array(z.string()),
  argv_cut: z
    .strictObject({ tokens: z.int(), bytes: z.int(), sha256: hexId })
    .optional()
    .describe('argv is only its beginning; this is of the whole'),
  asked_at: z.iso.datetime(),
  lifetime_ms: z.int().nullable(),
  keep_bytes: z.int().nullable(),
  session: z.string().nullable(),
  state: z.enum(DETACHED_STATES),
  code: z.int().nullable(),
  signal: z.int().nullable(),
  denial_reason: z.enum(DENIAL_REASONS).nullable(),
  heard_at: z.iso.datetime().nullable().describe('when state was heard; null: never'),
  kept: kept.nullable().describe('what its host said just now; null: it was not asked, or did not answer'),
  problem: z
    .strictObject({ error: z.string(), message: z.string(), next: z.string().optional() })
    .nullable()
    .describe('why its host did not answer'),
}

const detachedRun = z.strictObject(shown).meta({ id: 'DetachedRun' })
const runOutcome = z.strictObject(outcome).nullable().describe('of the signed Exit, where it was seen just now')

export const runs = z.strictObject({ ok: z.literal(true), runs: z.array(detachedRun) })
export const oneRun = z.strictObject({ ok: z.literal(true), ...shown })
export const waitedRuns = z.strictObject({
  ok: z.literal(true),
  runs: z.array(z.strictObject({ ...shown, over: z.boolean(), outcome: runOutcome })).describe('in the order in which they were named'),
})

const end = { from: z.int().min(0), next: z.int().min(0).describe('where to go on') }

/** The end of what was kept, or of the run. */
export const attachedOutput = z
  .strictObject({
    ok: z.literal(true),
    request_id: requestId,
    state: z.enum(DETACHED_STATES),
    ...end,
    stdout_b64: base64,
    stderr_b64: base64,
    outcome: runOutcome,
  })
  .meta({ id: 'AttachedOutput' })

const attachedEventWith = <T extends z.ZodType>(data: Record<string, T>) =>
  z.discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('state'),
      request_id: requestId,
      state: z.enum(DETACHED_STATES),
      from: z.int().min(0),
      ...kept.shape,
    }),
    z.strictObject({ type: z.literal('started'), ...started }),
    z.strictObject({ type: z.literal('warning'), ...warning }),
    z.strictObject({
      type: z.enum(['stdout', 'stderr']),
      request_id: requestId,
      offset: z.int().min(0).describe('of its first byte'),
      ...data,
    }),
    z.strictObject({ type: z.literal('reattached'), request_id: requestId, offset: z.int().min(0) }),
    z.strictObject({ type: z.literal('exit'), ...outcome, ...end }),
    z.strictObject({ type: z.literal('end'), request_id: requestId, state: z.enum(DETACHED_STATES), ...end }),
    z.strictObject({ type: z.literal('error'), request_id: requestId, ...errorTold, next: z.int().min(0) }),
  ])

/** One line of the streamed output of a detached run. */
export const attachedEvent = attachedEventWith({ data_b64: base64 }).meta({ id: 'AttachedEvent' })
/** One line of it whose output follows its line as it is. */
export const rawAttachedEvent = attachedEventWith({ data_bytes: z.int().min(0) }).meta({ id: 'RawAttachedEvent' })
