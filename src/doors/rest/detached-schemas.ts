import * as z from 'zod'
import { ATTACHED_EVENTS, ATTACHED_OUTPUT, RAW_ATTACHED_EVENTS, WAITED } from '../../protocol/api/attached-events.ts'
import { SHOWN_RUN } from '../../protocol/api/detached-run.ts'
import { yes } from '../../protocol/json-table.ts'
import { MAX_WAITED_RUNS } from '../../protocol/limits/detached.ts'
import { zodOf } from '../zod-of.ts'
import { eventOf, optional, requestId, sessionName } from './schemas.ts'

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

const ok = z.literal(true)
const detachedRun = zodOf(SHOWN_RUN).meta({ id: 'DetachedRun' })

export const runs = z.strictObject({ ok, runs: z.array(detachedRun) })
export const oneRun = zodOf({ ok: yes, ...SHOWN_RUN })
export const waitedRuns = z.strictObject({
  ok,
  runs: z.array(zodOf({ ...SHOWN_RUN, ...WAITED })).describe('in the order in which they were named'),
})

export const attachedOutput = zodOf(ATTACHED_OUTPUT).meta({ id: 'AttachedOutput' })

/** One line of the streamed output of a detached run. */
export const attachedEvent = eventOf(ATTACHED_EVENTS).meta({ id: 'AttachedEvent' })
/** One line of it whose output follows its line as it is. */
export const rawAttachedEvent = eventOf(RAW_ATTACHED_EVENTS).meta({ id: 'RawAttachedEvent' })
