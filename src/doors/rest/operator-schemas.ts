import * as z from 'zod'

import { ROTATED_TOKENS, RUN_STATES, TRUST_CAUSES, TRUST_DECISIONS, TRUST_LEVELS } from '../../protocol/reasons.ts'
import { labels } from './fleet-schemas.ts'
import { agentName, hexId, optional, requestId } from './schemas.ts'

export const incomingList = z.strictObject({})
export const incomingCancel = z.strictObject({
  request_id: requestId,
  agent_id: optional(hexId).describe('whose it is, where more than one agent has a run under that id'),
})

export const tokenRotate = z.strictObject({ token: z.enum(ROTATED_TOKENS) })
export const tokenRotated = z.strictObject({
  ok: z.literal(true),
  token: z.enum(ROTATED_TOKENS),
  file: z.string().describe('where the new one is'),
})

export const trustQuery = z.strictObject({ agent_id: hexId.optional(), agent: agentName.optional(), machine_id: hexId })

export const contactRecord = z.strictObject({
  name: z.string(),
  agent_id: hexId,
  trust: z.enum(TRUST_LEVELS),
  machines: z.array(hexId).describe('that it is pinned to'),
  addresses: z.array(z.string()),
  formerly: z.array(hexId).describe('keys that it had before, the newest first'),
  labels,
  revoked: z.boolean(),
  revoked_machines: z.array(hexId),
})

export const trustEvaluation = z
  .strictObject({
    ok: z.literal(true),
    agent_id: hexId,
    machine_id: hexId,
    decision: z.enum(TRUST_DECISIONS),
    cause: z.enum(TRUST_CAUSES).describe('which rule says so'),
    in_acl: z.boolean().describe('the ACL has an entry for exactly this pair'),
    contact: contactRecord.nullable(),
  })
  .meta({ id: 'TrustEvaluation' })

const incomingRun = z
  .strictObject({
    request_id: requestId,
    agent_id: hexId,
    machine_id: hexId,
    name: z.string().nullable().describe('what the operator calls the agent; null: it is no contact'),
    argv: z.array(z.string()),
    argv_cut: z
      .strictObject({ tokens: z.int(), bytes: z.int(), sha256: hexId })
      .optional()
      .describe('argv is only its beginning; this is of the whole'),
    started_at: z.iso.datetime(),
    state: z.enum(RUN_STATES),
  })
  .meta({ id: 'IncomingRun' })

export const incomingRuns = z.strictObject({ ok: z.literal(true), sessions: z.array(incomingRun) })
export const incomingEnded = z.strictObject({ ok: z.literal(true), session: incomingRun })

export const pinged = z
  .strictObject({
    ok: z.literal(true),
    agent_id: hexId,
    machine_id: hexId,
    decision: z.enum(TRUST_DECISIONS).describe('what our trust rules say of it'),
    path: z
      .strictObject({
        address: z.string(),
        inbound: z.boolean().describe('it dialled us'),
        direct: z.boolean(),
        relay: hexId.nullable().describe('the machine that carries it; null: it is direct'),
      })
      .nullable()
      .describe('null: it is this agent itself'),
    connect_ms: z.number().describe('until there was a stream to ask on'),
    rtt_ms: z.number(),
    version: z.string().describe('of the x0xd over there, as it says'),
    own_version: z.string(),
    clock_ahead_ms: z.int().describe('how far its clock is ahead of ours'),
  })
  .meta({ id: 'Pinged' })
