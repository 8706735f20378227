import * as z from 'zod'
import { MAX_FANOUT_HOSTS, MAX_FANOUT_PARALLEL } from '../../protocol/fanout-limits.ts'
import { FANOUT_EVENTS, FANOUT_RESULT, PERCENTAGE } from '../../protocol/fanout.ts'
import { MAX_TEXT } from '../../protocol/limits.ts'
import { zodOf } from '../zod-of.ts'
import { hostWord } from './fleet-schemas.ts'
import { argv, base64, clamp, eventOf, hexId, optional, requestId, sessionName } from './schemas.ts'

export const fanoutRequest = z
  .strictObject({
    hosts: z.array(hostWord).min(1).max(MAX_FANOUT_HOSTS).describe('a list of words that say whom to ask'),
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
