import * as z from 'zod'
import { CONTACT, INCOMING_RUN, PINGED, TRUST_EVALUATION } from '../../protocol/api-answers.ts'
import { yes } from '../../protocol/json-table.ts'
import { ROTATED_TOKENS } from '../../protocol/reasons.ts'
import { zodOf } from '../zod-of.ts'
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

export const contactRecord = zodOf(CONTACT)

export const trustEvaluation = zodOf({ ok: yes, ...TRUST_EVALUATION }).meta({ id: 'TrustEvaluation' })

const incomingRun = zodOf(INCOMING_RUN).meta({ id: 'IncomingRun' })
export const incomingRuns = z.strictObject({ ok: z.literal(true), sessions: z.array(incomingRun) })
export const incomingEnded = z.strictObject({ ok: z.literal(true), session: incomingRun })

export const pinged = zodOf({ ok: yes, ...PINGED }).meta({ id: 'Pinged' })
