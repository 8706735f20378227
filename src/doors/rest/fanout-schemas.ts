import * as z from 'zod'

import { FANOUT_ENDS, PERCENTAGE } from '../../protocol/fanout.ts'
import { MAX_FANOUT_HOSTS, MAX_FANOUT_PARALLEL } from '../../protocol/fanout-limits.ts'
import { MAX_TEXT } from '../../protocol/limits.ts'
import { DENIAL_REASONS, WARNING_KINDS } from '../../protocol/reasons.ts'
import { hostWord } from './fleet-schemas.ts'
import { argv, base64, clamp, errorTold, hexId, optional, requestId, runTold, sessionName } from './schemas.ts'

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

const host = { host: z.string().describe("the contact's name, else the agent's id") }

const ended = {
  ...host,
  agent_id: hexId,
  machine_id: hexId.nullable(),
  request_id: requestId.nullable().describe('null: it had no turn'),
  end: z.enum(FANOUT_ENDS),
  code: z.int().nullable(),
  signal: z.int().nullable(),
  denial_reason: z.enum(DENIAL_REASONS).nullable(),
  error: z.string().nullable().describe('a code of the error table; of one that was not started why'),
  duration_ms: z.int().nullable(),
  stdout_bytes_total: z.int(),
  stderr_bytes_total: z.int(),
  truncated: z.boolean(),
  incomplete: z.boolean().describe('of one that ran: bytes of its output are missing'),
  warnings: z.array(z.enum(WARNING_KINDS)),
  waited_ms: z.int().min(0).optional(),
  message: z.string().optional(),
  next: z.string().optional().describe('what to do next'),
}

const ledger = {
  fanout_id: requestId,
  ok: z.boolean().describe('every host ran and ended with code 0, its output complete'),
  asked: z.int().describe('the six ends below add up to it'),
  ran: z.int(),
  denied: z.int(),
  unreachable: z.int(),
  not_started: z.int(),
  cancelled: z.int(),
  unknown: z.int().describe('it may have run'),
  failed: z.int().describe('of those that ran: a code that is not 0, a signal, or output that is missing or that a cap cut'),
}

/** One line of the streamed answer. */
export const fanoutEvent = z
  .discriminatedUnion('type', [
    z.strictObject({
      type: z.literal('fanout'),
      fanout_id: requestId,
      hosts: z.array(z.strictObject({ ...host, agent_id: hexId })),
      more: z.literal(true).optional().describe('another such line follows'),
    }),
    z.strictObject({ type: z.literal('begun'), ...host, request_id: requestId }),
    ...runTold({ data_b64: base64 }, host),
    z.strictObject({ type: z.literal('host'), ...ended }),
    z.strictObject({ type: z.literal('ledger'), ...ledger }),
    z.strictObject({ type: z.literal('error'), fanout_id: requestId.nullable(), ...errorTold }),
  ])
  .meta({ id: 'FanoutEvent' })

export const fanoutResult = z
  .strictObject({ ...ledger, hosts: z.array(z.strictObject({ ...ended, stdout_b64: base64, stderr_b64: base64 })) })
  .meta({ id: 'FanoutResult' })
