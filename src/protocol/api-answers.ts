import { hexId, requestId } from './api-fields.ts'
import { ARGV_CUT } from './api/detached-run.ts'
import {
  type Sent,
  count,
  flag,
  integer,
  list,
  map,
  number,
  oneOf,
  optional,
  orNull,
  record,
  text,
  texts,
  time,
  yes,
} from './json-table.ts'
import { RUN_STATES, TRUST_CAUSES, TRUST_DECISIONS, TRUST_LEVELS } from './reasons.ts'

/** Responses of the API about the daemon's state. */

const labels = map(text, text).says('labels that the operator set, by key')
const PAIR = { agent_id: hexId, machine_id: hexId }
/** Decisions of the trust rules of the daemon's host. */
const decision = oneOf(TRUST_DECISIONS)

export const AGENT = { ok: yes, ...PAIR, name: text, addresses: texts, version: text, revoked: flag }
export type AgentAnswer = Sent<typeof AGENT>

/** Fields of a contact for the network process. It needs them for display, name lookup and dialling. */
export const CONTACT = {
  name: text,
  agent_id: hexId,
  trust: oneOf(TRUST_LEVELS),
  machines: list(hexId).says('machines that the contact is pinned to'),
  /** Addresses of the imported card, each ending in /p2p/<peer id>. */
  addresses: texts,
  formerly: list(hexId).says('earlier keys of the contact, the newest first'),
  labels,
  /** The agent has revoked its key forever. No field above overrides this. */
  revoked: flag,
  /** Machines on which the agent has revoked its presence. */
  revoked_machines: list(hexId),
}
export type ContactRecord = Sent<typeof CONTACT>

/** A group of contacts from the operator's file. Its terms are valid, and no group contains itself. */
const GROUP = { name: text, words: texts }
export type GroupRecord = Sent<typeof GROUP>

export const CONTACTS = { ok: yes, contacts: list(record(CONTACT)), groups: list(record(GROUP)) }
export type ContactsAnswer = Sent<typeof CONTACTS>

/** The agent claims `name`, but `linked` is proven. */
const PEER = {
  agent_id: orNull(hexId),
  machine_id: hexId,
  name: orNull(text).says("name in the agent's card"),
  addresses: texts,
  connected: flag,
  linked: flag.says('both agents and both machines are authenticated on this connection'),
  relayed_by: orNull(record({ agent_id: orNull(hexId), machine_id: hexId })).says(
    'relay of the connection; null if it is direct, or there is none',
  ),
  rtt_ms: orNull(number),
  last_heard: orNull(time).says('time of the last data on a connection; null if there is no connection'),
  last_seen: orNull(time).says("issue time of the agent's card; null if no card is known"),
}
export type PeerJson = Sent<typeof PEER>

/** Counts of the known mesh. At most 1,024 unlisted machines are counted. */
const MESH_COUNTS = {
  heard: count.says('machines that recently sent a presence'),
  known: count.says('agents with a known valid card'),
  standing: count.says('persistent connections wanted'),
  connected: count,
}
export type MeshCounts = Sent<typeof MESH_COUNTS>

export const PEERS = {
  ok: yes,
  peers: list(record(PEER)),
  mesh: record(MESH_COUNTS),
  draining: optional(yes).says('this daemon is restarting and accepts no new runs; absent otherwise'),
}
export type PeersAnswer = Sent<typeof PEERS>

/** A requested run that has not ended. */
const RUN_SESSION = {
  request_id: requestId,
  agent_id: hexId,
  machine_id: orNull(hexId).says('null if not connected yet'),
  argv: texts,
  fanout_id: optional(requestId),
  host: optional(text).says('name of the host in the fan-out'),
  started_at: time,
  /** `connecting` until the Request is sent, then `waiting_for_approval` if needed, `requested` until the process runs. */
  state: oneOf(['connecting', 'requested', 'waiting_for_approval', 'running', 'cancelling']),
  approval_expires_at: optional(time),
}
export type RunSession = Sent<typeof RUN_SESSION>

const FANOUT_SESSION = { fanout_id: requestId, argv: texts, started_at: time, asked: count, begun: count, ended: count }
export type FanoutSession = Sent<typeof FANOUT_SESSION>

export const SESSIONS = { ok: yes, sessions: list(record(RUN_SESSION)), fanouts: list(record(FANOUT_SESSION)) }

/** A run on this host for another agent. */
export const INCOMING_RUN = {
  request_id: requestId,
  ...PAIR,
  name: orNull(text).says('name of the contact; null if the agent is not a contact'),
  argv: texts,
  argv_cut: optional(record(ARGV_CUT)).says('size and digest of the whole argv; present if argv is only its beginning'),
  /** Time of the request. */
  started_at: time,
  state: oneOf(RUN_STATES),
  detached: flag.says('the run continues without its requester'),
}
export type IncomingRun = Sent<typeof INCOMING_RUN>

/** Present decision of the trust rules about a pair. */
export const TRUST_EVALUATION = {
  ...PAIR,
  decision,
  cause: oneOf(TRUST_CAUSES).says('trust rule that decided'),
  in_acl: flag.says('the ACL has an entry for exactly this pair'),
  contact: orNull(record(CONTACT)),
}
export type TrustEvaluation = Sent<typeof TRUST_EVALUATION>

const PING_PATH = {
  address: text,
  inbound: flag.says('the other machine opened the connection'),
  direct: flag,
  relay: orNull(hexId).says('machine ID of the relay; null if the connection is direct'),
}
export const PINGED = {
  ...PAIR,
  decision: decision.says("decision of this daemon's trust rules"),
  path: orNull(record(PING_PATH)).says('null if the target is this agent'),
  connect_ms: number.says('time until a stream was open'),
  rtt_ms: number,
  version: text.says("version that the target's x0xd reports"),
  own_version: text,
  clock_ahead_ms: integer.says("how far the target's clock is ahead of this machine's"),
}
export type Pinged = Sent<typeof PINGED>

const SELECTED_HOST = {
  host: text.says('name of the contact, or the agent ID'),
  agent_id: hexId,
  labels,
  trust: orNull(oneOf(TRUST_LEVELS)).says('null if the agent is not a contact'),
}
export type SelectedHost = Sent<typeof SELECTED_HOST>

export const SELECTED_HOSTS = {
  ok: yes,
  hosts: list(record(SELECTED_HOST)),
  expression: text.says('the names of the hosts, as a node set'),
}
export type SelectedHosts = Sent<typeof SELECTED_HOSTS>
