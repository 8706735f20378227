import * as z from 'zod'
import { SELECTED_HOSTS } from '../../protocol/api-answers.ts'
import { FANOUT_EVENTS, FANOUT_RESULT, PERCENTAGE } from '../../protocol/api/fanout.ts'
import { MAX_FANOUT_HOSTS, MAX_FANOUT_PARALLEL, MAX_HOST_WORDS } from '../../protocol/limits/fleet.ts'
import { MAX_TEXT } from '../../protocol/limits/wire.ts'
import { zodOf } from '../zod-of.ts'
import { agentName, argv, base64, clamp, eventOf, hexId, optional, requestId, sessionName } from './schemas.ts'

/** What is wrong with a label is said by who writes it down. */
export const contactLabel = z.strictObject({
  contact: agentName,
  labels: z.record(z.string(), z.string().nullable()).describe('null takes the label away'),
})

export const hostTerm = z
  .string()
  .max(MAX_HOST_WORDS)
  .describe('a name, an id, a node set such as web[1-20,30], @group, key=value, or several with commas between; ! before one leaves it out')

/** `?expr=a&expr=b`; one alone is no list where a query is read. */
export const selectQuery = z.strictObject({
  expr: z
    .union([hostTerm, z.array(hostTerm).min(1).max(MAX_FANOUT_HOSTS)])
    .describe('words that say whom to ask')
    .transform((words) => (typeof words === 'string' ? [words] : words)),
})

export const selectedHosts = zodOf(SELECTED_HOSTS).meta({ id: 'SelectedHosts' })

export const fanoutRequest = z
  .strictObject({
    hosts: z.array(hostTerm).min(1).max(MAX_FANOUT_HOSTS).describe('a list of words that say whom to ask'),
    argv,
    stdin_b64: optional(base64).describe('for each host'),
    timeout_ms: optional(z.int().min(1)).describe('of each host'),
    clamp,
    cwd: optional(z.string().max(MAX_TEXT)),
    parallel: optional(z.int().min(1).max(MAX_FANOUT_PARALLEL)).describe('hosts at once'),
    canary: optional(z.int().min(0)).describe('so many of the first must run and end with code 0 before the others begin'),
    max_failures: optional(
      z.union([z.int().min(1), z.string().regex(PERCENTAGE)]).describe('a whole number of at least 1, or a part of the hosts such as "5%"'),
    ).describe('with so many hosts that did not end with code 0, no more begin'),
    deadline_ms: optional(z.int().min(1)).describe('for all hosts: then no more begin, and what runs is cancelled'),
    session: optional(sessionName),
    fanout_id: optional(requestId),
    request_ids: optional(z.record(hexId, requestId)).describe('the request ids of some hosts, by agent'),
  })
  .meta({ id: 'FanoutRequest' })
export type FanoutRequest = z.infer<typeof fanoutRequest>

/** One line of the streamed answer. */
export const fanoutEvent = eventOf(FANOUT_EVENTS).meta({ id: 'FanoutEvent' })

export const fanoutResult = zodOf(FANOUT_RESULT).meta({ id: 'FanoutResult' })
