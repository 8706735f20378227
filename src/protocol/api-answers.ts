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

const labels = map(text, text).says("the operator's, by their keys")
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
  machines: list(hexId).says('that it is pinned to'),
  /** Addresses of the imported card, each ending in /p2p/<peer id>. */
  addresses: texts,
  formerly: list(hexId).says('keys that it had before, the newest first'),
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
  name: orNull(text).says('what the agent calls itself'),
  addresses: texts,
  connected: flag,
  linked: flag.says('both agents and both machines are proven on this connection'),
  relayed_by: orNull(record({ agent_id: orNull(hexId), machine_id: hexId })).says('null: the connection is direct, or there is none'),
  rtt_ms: orNull(number),
  last_heard: orNull(time).says('when data of it last came on a connection; null: there is no connection'),
  last_seen: orNull(time).says('when its card was issued; null: no card is known'),
}
export type PeerJson = Sent<typeof PEER>

/** Counts of the known mesh. At most 1,024 unlisted machines are counted. */
const MESH_COUNTS = {
  heard: count.says('machines that sent a presence lately'),
  known: count.says('agents that a card proves'),
  standing: count.says('machines to keep a connection to'),
  connected: count,
}
export type MeshCounts = Sent<typeof MESH_COUNTS>

export const PEERS = {
  ok: yes,
  peers: list(record(PEER)),
  mesh: record(MESH_COUNTS),
  draining: optional(yes).says('this daemon accepts no new run, because it restarts; absent otherwise'),
}
export type PeersAnswer = Sent<typeof PEERS>

/** A requested run that has not ended. */
const RUN_SESSION = {
  request_id: requestId,
  agent_id: hexId,
  machine_id: orNull(hexId).says('null: not connected yet'),
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
  name: orNull(text).says('what the operator calls the agent; null: it is no contact'),
  argv: texts,
  argv_cut: optional(record(ARGV_CUT)).says('argv is only its beginning; this is of the whole'),
  /** Time of the request. */
  started_at: time,
  state: oneOf(RUN_STATES),
  detached: flag.says('it outlives its caller'),
}
export type IncomingRun = Sent<typeof INCOMING_RUN>

/** Present decision of the trust rules about a pair. */
export const TRUST_EVALUATION = {
  ...PAIR,
  decision,
  cause: oneOf(TRUST_CAUSES).says('which rule says so'),
  in_acl: flag.says('the ACL has an entry for exactly this pair'),
  contact: orNull(record(CONTACT)),
}
export type TrustEvaluation = Sent<typeof TRUST_EVALUATION>

const PING_PATH = {
  address: text,
  inbound: flag.says('it dialled us'),
  direct: flag,
  relay: orNull(hexId).says('the machine that carries it; null: it is direct'),
}
export const PINGED = {
  ...PAIR,
  decision: decision.says('what our trust rules say of it'),
  path: orNull(record(PING_PATH)).says('null: it is this agent itself'),
  connect_ms: number.says('until there was a stream to ask on'),
  rtt_ms: number,
  version: text.says('of the x0xd over there, as it says'),
  own_version: text,
  clock_ahead_ms: integer.says('how far its clock is ahead of ours'),
}
export type Pinged = Sent<typeof PINGED>

const SELECTED_HOST = {
  host: text.says("the contact's name, else the id"),
  agent_id: hexId,
  labels,
  trust: orNull(oneOf(TRUST_LEVELS)).says('null: it is no contact'),
}
export type SelectedHost = Sent<typeof SELECTED_HOST>

export const SELECTED_HOSTS = { ok: yes, hosts: list(record(SELECTED_HOST)), expression: text.says('their names, folded') }
export type SelectedHosts = Sent<typeof SELECTED_HOSTS>
