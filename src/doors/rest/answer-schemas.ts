import * as z from 'zod'
import { AGENT, CONTACT, CONTACTS, INCOMING_RUN, PEERS, PINGED, SESSIONS, TRUST_EVALUATION } from '../../protocol/api-answers.ts'
import { ENROL_KEY_ANSWER, ENROL_KEYS_ANSWER } from '../../protocol/api/enrolment.ts'
import { yes } from '../../protocol/json-table.ts'
import { DENIAL_REASONS, ROTATED_TOKENS, TRUST_DECISIONS, WARNING_KINDS } from '../../protocol/reasons.ts'
import { zodOf } from '../zod-of.ts'
import { agentName, hexId, optional, requestId } from './schemas.ts'

export const incomingList = z.strictObject({})
export const incomingCancel = z.strictObject({
  request_id: requestId,
  agent_id: optional(hexId).describe('requester of the run; needed if several agents have a run with this ID'),
})

export const tokenRotate = z.strictObject({ token: z.enum(ROTATED_TOKENS) })
export const tokenRotated = z.strictObject({
  ok: z.literal(true),
  token: z.enum(ROTATED_TOKENS),
  file: z.string().describe('file with the new secret'),
})

export const aclSign = z.strictObject({
  acl_version: z.int().min(1).describe('version of the ACL; hosts refuse a version below the last one that they accepted'),
  acl_sha256: hexId.describe('SHA-256 of the text after the header of the bundle'),
})
export const aclSigned = z.strictObject({
  ok: z.literal(true),
  agent_id: hexId,
  public_key: z.string().describe('public key of the agent, base64url'),
  signature: z.string().describe('signature, base64url; domain x0x-acl-bundle-v1'),
})

export const trustQuery = z.strictObject({ agent_id: hexId.optional(), agent: agentName.optional(), machine_id: hexId })

export const contactRecord = zodOf(CONTACT)

export const trustEvaluation = zodOf({ ok: yes, ...TRUST_EVALUATION }).meta({ id: 'TrustEvaluation' })

const incomingRun = zodOf(INCOMING_RUN).meta({ id: 'IncomingRun' })
export const incomingRuns = z.strictObject({ ok: z.literal(true), sessions: z.array(incomingRun) })
export const incomingEnded = z.strictObject({ ok: z.literal(true), session: incomingRun })

export const pinged = zodOf({ ok: yes, ...PINGED }).meta({ id: 'Pinged' })

const ok = z.literal(true)
const dateTime = z.iso.datetime()
const counters = z.record(z.string(), z.int()).describe('counters by name')

export const agentAnswer = zodOf(AGENT).meta({ id: 'Agent' })
export const cardAnswer = z.strictObject({ ok, link: z.string().describe('link of the card, x0x://agent/…') })
export const contactAnswer = z.strictObject({ ok, contact: contactRecord })
export const revokeAnswer = z.strictObject({
  ok,
  agent_id: hexId,
  machine_id: hexId.nullable().describe('revoked machine; null if the agent is revoked on every machine'),
})

export const contactsAnswer = zodOf(CONTACTS).meta({ id: 'Contacts' })
export const enrolKeyAnswer = zodOf(ENROL_KEY_ANSWER).meta({ id: 'EnrolmentKey' })
export const enrolKeysAnswer = zodOf(ENROL_KEYS_ANSWER).meta({ id: 'EnrolmentKeys' })
export const peersAnswer = zodOf(PEERS).meta({ id: 'Peers' })

export const connectedAnswer = z.strictObject({ ok, agent_id: hexId, machine_id: hexId, decision: z.enum(TRUST_DECISIONS) })
export const sentAnswer = z.strictObject({ ok, request_id: requestId, outcome: z.enum(['delivered', 'no_listener', 'rejected']) })
export const cancelAnswer = z.union([z.strictObject({ ok, request_id: requestId }), z.strictObject({ ok, fanout_id: requestId })])

export const sessionsAnswer = zodOf(SESSIONS).meta({ id: 'Sessions' })

export const routesAnswer = z
  .strictObject({
    ok,
    routes: z.array(
      z.strictObject({
        method: z.enum(['GET', 'POST', 'PUT']),
        path: z.string(),
        category: z.string(),
        cli: z.string().nullable(),
        description: z.string(),
      }),
    ),
  })
  .meta({ id: 'Routes' })

const journalPlace = z.strictObject({ path: z.string(), writable: z.boolean() })
const byStream = z.strictObject({ stdout: z.int(), stderr: z.int() })

export const execDiagnosticsAnswer = z
  .strictObject({
    ok,
    enabled: z.boolean(),
    active_sessions: z.int(),
    waiting_runs: z.int(),
    active_per_agent: z.record(z.string(), z.int()),
    totals: z
      .object({
        denial_breakdown: z.partialRecord(z.enum(DENIAL_REASONS), z.int()),
        outcome_breakdown: z.strictObject({ succeeded: z.int(), failed: z.int(), signalled: z.int() }),
        output_bytes: byStream,
        duration_secs: z.strictObject({ buckets: z.record(z.string(), z.int()), sum: z.number() }),
        cap_breaches: z.strictObject({ stdout: z.int(), stderr: z.int(), duration: z.int() }),
        cap_warnings: z.strictObject({ stdout_approaching: z.int(), stderr_approaching: z.int(), duration_approaching: z.int() }),
      })
      .catchall(z.int()),
    recent_warnings: z.array(
      z.strictObject({
        ts: dateTime,
        kind: z.enum(WARNING_KINDS),
        agent_id: hexId,
        request_id: requestId,
        argv_summary: z.string(),
        bytes_at_warn: z.int().nullable(),
        processes: z.int().optional().describe('with descendants_ended: number of ended processes'),
      }),
    ),
    acl_summary: z.strictObject({
      loaded_from: z.string(),
      loaded_at: dateTime.nullable(),
      sha256: hexId.nullable(),
      signature: z.strictObject({ version: z.int(), signer: hexId }).nullable().describe('signature of the ACL; null if it is not signed'),
      allow_entry_count: z.int(),
      command_entry_count: z.int(),
      disabled_reason: z.string().nullable().describe('why exec is disabled; null if it is enabled'),
    }),
    journal: journalPlace.nullable(),
    outgoing_journal: journalPlace,
    draining: z.boolean().describe('the daemon denies new runs, and restarts when the current ones have ended'),
    desk: z
      .strictObject({ waiting: z.int(), windows: z.int(), outcomes: counters })
      .nullable()
      .describe('state of the approval service; null if this daemon has none'),
    requester: counters,
  })
  .meta({ id: 'ExecDiagnostics' })

export const linkDiagnosticsAnswer = z
  .object({
    ok,
    links: z.array(
      z.strictObject({
        agent_id: hexId,
        machine_id: hexId,
        decision: z.enum(TRUST_DECISIONS),
        initiator: z.boolean(),
        channels: z.int(),
        opened_at: dateTime,
      }),
    ),
    link_failures: counters,
  })
  .catchall(z.int())
  .meta({ id: 'LinkDiagnostics' })

export const meshDiagnosticsAnswer = z
  .strictObject({
    ok,
    machine_id: hexId,
    listening: z.boolean(),
    strangers: z.boolean().describe('unlisted peers may connect'),
    addresses: z.array(z.string()),
    connections: z.array(
      z.strictObject({
        machine_id: hexId,
        agent_id: hexId.nullable(),
        address: z.string(),
        direction: z.enum(['inbound', 'outbound']),
        relay: hexId.nullable(),
        age_secs: z.int(),
        rtt_ms: z.number().nullable(),
        received: counters.nullable(),
      }),
    ),
    standing: z.strictObject({ wanted: z.int(), connected: z.int() }),
    reach: z.strictObject({
      public: z.boolean(),
      relays: z.array(
        z.strictObject({
          machine_id: hexId,
          connected: z.boolean(),
          reserved_until: dateTime.nullable(),
          last_error: z.string().nullable(),
        }),
      ),
      carrying: z
        .strictObject({
          carried: z.array(z.strictObject({ from: hexId, to: hexId, bytes: z.int(), age_secs: z.int() })),
          carried_total: z.int(),
          carried_bytes_total: z.int(),
          refused: counters,
        })
        .nullable()
        .describe('relayed connections of others; null if this daemon is not a relay'),
    }),
    wanted: z.array(z.strictObject({ machine_id: hexId, connected: z.boolean(), failures: z.int(), last_error: z.string().nullable() })),
    penalties: z.array(z.strictObject({ source: z.string(), refused: z.boolean(), offence: z.string(), secs: z.int() })),
    metered: counters,
    offences: counters,
    refused: counters,
    presences: counters,
    cards: counters,
    records: counters,
    hash_table: z.strictObject({ mode: z.enum(['off', 'client', 'server']), peers: z.int(), connected: z.int(), records: z.int() }),
  })
  .meta({ id: 'MeshDiagnostics' })

export const health = z
  .strictObject({
    ok: z.boolean().describe('false if the daemon does not work or is draining'),
    version: z.string(),
    agent: z.string().describe('first characters of the agent ID'),
    draining: z.boolean().describe('the daemon accepts no new runs, and restarts when the current ones have ended'),
    uptime_secs: z.int(),
    mesh: z.strictObject({ listening: z.boolean(), linked_peers: z.int() }),
    exec: z.strictObject({ status: z.string(), journal_writable: z.boolean().nullable() }),
  })
  .meta({ id: 'Health' })
