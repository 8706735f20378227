import { LOG_LEVELS } from '../base/log-level.ts'
import { STAGES } from '../base/run-stages.ts'
import { MAX_CONFIG_ADDRESSES, MAX_PROVEN_REQUEST, MAX_REFUSED_HTTP_TEXT, MAX_WORK_JSON } from '../protocol/limits/daemon.ts'
import { MAX_ENROL_ADDRESSES } from '../protocol/limits/enrolment.ts'
import { MAX_SESSION_NAME } from '../protocol/limits/events.ts'
import {
  AGENT_PUBLIC_KEY_BYTES,
  AGENT_SIGNATURE_BYTES,
  KEM_CIPHERTEXT_BYTES,
  KEM_PUBLIC_KEY_BYTES,
  MAX_ADDRESS_TEXT,
  MAX_ARGV_BYTES,
  MAX_ARGV_TOKENS,
  MAX_BATCH_SIGNATURE_BYTES,
  MAX_CARD_ADDRESSES,
  MAX_CARD_BYTES,
  MAX_EXIT_STATUS,
  MAX_FRAME_DATA,
  MAX_KEPT_AGENTS,
  MAX_LINK_FRAME,
  MAX_NAME,
  MAX_NONCES_PER_PEER,
  MAX_PORT_MESSAGE,
  MAX_REVOCATIONS_PER_LINK,
  MAX_SEALED_FRAME,
  MAX_SIGNAL,
  MAX_SNAPSHOT_PART,
  MAX_TEXT,
  NONCE_BYTES,
  SEED_BYTES,
} from '../protocol/limits/wire.ts'
import { DENIAL_REASONS, DETACHED_STATES, DHT_CHOICES, HTTP_REFUSALS, TRUST_DECISIONS } from '../protocol/reasons.ts'
import { DETACHED_ASKS } from '../protocol/wire/detached.ts'
import { signedStdin } from '../protocol/wire/exec.ts'
import { TERMINAL_FIELDS, newTerminalSize, typedBytes } from '../protocol/wire/terminal.ts'
import { NO_BYTES, type ValueOf, bool, bytes, id32, list, nullable, oneOf, requestId, text, uint, union } from '../protocol/wire/schema.ts'

const call = { id: uint() }
const one = { ...call, request_id: requestId }

/** Calls about requested detached runs, whose file only the executor has. Reply: result. */
export const DETACHED_REQUEST_MESSAGES = {
  /** Sent before the Request. `digest` covers everything that a repeated Request must repeat. `request` is the SHA-256 of this one. */
  asked_add: [
    28,
    {
      ...one,
      agent_id: id32,
      machine_id: id32,
      argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
      lifetime_ms: nullable(uint()),
      keep_bytes: nullable(uint()),
      session: nullable(text(MAX_SESSION_NAME)),
      digest: id32,
      request: id32,
    },
  ],
  /** The oldest rows, or those after `after`. */
  asked_page: [29, { ...call, after: nullable(requestId) }],
  asked_get: [30, one],
  /** State of the run as the target reported it. */
  asked_note: [
    31,
    {
      ...one,
      state: oneOf(DETACHED_STATES),
      code: nullable(uint(MAX_EXIT_STATUS)),
      signal: nullable(uint(MAX_SIGNAL)),
      denial_reason: nullable(oneOf(DENIAL_REASONS)),
    },
  ],
  asked_forget: [32, one],
} as const

/** The reply type of each call. */
export const ASKED_ANSWERS = {
  asked_add: 'result',
  asked_page: 'result',
  asked_get: 'result',
  asked_note: 'result',
  asked_forget: 'result',
} as const

const MAX_TCP_PORT = 65_535
const address = text(MAX_ADDRESS_TEXT)
const httpText = text(MAX_REFUSED_HTTP_TEXT)

/** Version of this API. Both processes are of one release, so any other version is refused. */
export const PORT_VERSION = 14

/** Number of a link, given by the executor. 0 is the daemon's link to itself. */
const link = { link: uint() }
/** Number of a run, given by the network process when it opens the run. */
const run = { run: uint() }

const apiTokens = {
  api_token: bytes(SEED_BYTES),
  /** Token that opens only GET /metrics, or null if only the API token does. */
  metrics_token: nullable(bytes(SEED_BYTES)),
}

/** Operations that need an operator proof, which the network process cannot make. */
export const OPERATIONS = [
  'card_import',
  'contact_meet',
  'contact_trust',
  'contact_pin',
  'contact_unpin',
  'contact_label',
  'contact_remove',
  'identity_revoke',
  'exec_incoming',
  'exec_incoming_cancel',
  'exec_cancel',
  'token_rotate',
  'acl_sign',
  'enrol_create',
  'enrol_list',
  'enrol_revoke',
] as const
export type Operation = (typeof OPERATIONS)[number]

/** Data that the network process may read as JSON. */
export const QUERIES = ['exec_diagnostics', 'contacts', 'acl_status', 'metrics'] as const
export type Query = (typeof QUERIES)[number]

/** From the network process to the executor. */
export const toExecutor = union('to-executor', {
  hello: [0, { ...call, version: uint() }],
  /** Start a link as initiator. The executor creates the nonce and writes M1. The reply is link_opened. */
  link_open: [1, { ...call, peer_machine: id32, kem_public_key: bytes(KEM_PUBLIC_KEY_BYTES) }],
  /** The initiator received M2 (MAC already checked). The executor verifies both signatures and signs. The reply is link_ready. */
  link_confirm: [2, { ...call, handle: uint(), m2: bytes(1, MAX_LINK_FRAME) }],
  /** The responder received M1. The executor creates the nonce, writes M2's core and signs. The reply is link_accepted. */
  link_accept: [3, { ...call, peer_machine: id32, m1: bytes(1, MAX_LINK_FRAME), kem_ciphertext: bytes(KEM_CIPHERTEXT_BYTES) }],
  /** The responder received M3 (MAC already checked). `m2` is what was sent. The reply is link_ready. */
  link_finish: [4, { ...call, handle: uint(), m2: bytes(1, MAX_LINK_FRAME), m3: bytes(1, MAX_LINK_FRAME) }],
  /** A handshake failed or was abandoned. */
  link_dropped: [5, { handle: uint() }],
  /** The connection of a link is closed, so its nonces are void. Its runs end with their own streams. */
  link_closed: [6, link],
  /** Issue stream nonces for the peer of a link. The reply is nonces. */
  mint_nonces: [7, { ...call, ...link, count: uint(MAX_NONCES_PER_PEER) }],
  /** Streams were closed unused. */
  drop_nonces: [8, { ...link, nonces: list(bytes(NONCE_BYTES), MAX_NONCES_PER_PEER) }],
  /**
   * Sign an outgoing Request to the peer of a link. Link 0 leads to this agent. `proven` is the request object exactly as an operator
   * proved it, and `proof` the header's text. Both are empty without a proof and for a part of `fanout`, which is proven as a whole. The
   * reply is signed.
   */
  sign_request: [
    9,
    {
      ...call,
      ...link,
      request_id: requestId,
      stream_nonce: bytes(NONCE_BYTES),
      argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
      stdin: nullable(signedStdin),
      timeout_ms: nullable(uint()),
      cwd: nullable(text(MAX_TEXT)),
      clamp: bool,
      proven: bytes(0, MAX_PROVEN_REQUEST),
      proof: text(MAX_TEXT),
      fanout: nullable(requestId),
    },
  ],
  /** Sign this agent's card, for people or as `announcement` for other daemons. The reply is signed. */
  sign_card: [
    10,
    {
      ...call,
      kind: oneOf(['card', 'announcement']),
      name: text(MAX_NAME),
      addresses: list(text(MAX_ADDRESS_TEXT), MAX_CARD_ADDRESSES),
      ttl_ms: uint(),
    },
  ],
  /** A peer's Request, or its request for rules, arrived on a stream as an exec-frame. run_frame replies follow until run_closed. */
  run_open: [11, { ...run, ...link, stream_nonce: bytes(NONCE_BYTES), frame: bytes(1, MAX_SEALED_FRAME) }],
  /** A later frame of the peer for this run. */
  run_frame: [12, { ...run, frame: bytes(1, MAX_SEALED_FRAME) }],
  /** The run's stream was lost. The run continues for the rest of its lease and may be resumed. */
  run_lost: [13, run],
  /** An operation. `body` is the JSON exactly as proven. `proof` is the header's text, or "" without a proof. The reply is result. */
  operate: [14, { ...call, operation: oneOf(OPERATIONS), body: bytes(0, MAX_SEALED_FRAME), proof: text(MAX_TEXT) }],
  /** Reply: result. */
  query: [15, { ...call, what: oneOf(QUERIES) }],
  /** Revocations that a peer sent. The reply is result with the number accepted. */
  revocations: [16, { ...call, ...link, items: list(bytes(1, MAX_CARD_BYTES), MAX_REVOCATIONS_PER_LINK) }],
  /** A peer's Resume arrived on a new stream. `frame` is an encoded exec-frame. Replies as for run_open. */
  run_resume: [17, { ...run, ...link, stream_nonce: bytes(NONCE_BYTES), frame: bytes(1, MAX_SEALED_FRAME) }],
  /** The peer is done with the run. It has the Exit, does not want it, or broke the protocol. */
  run_over: [18, run],
  /** All settings of the network process, which opens no file. Reply: settings. */
  settings: [19, call],
  /** The network process listens. `api_port` is the TCP port of its API. */
  network_ready: [20, { api_port: uint(MAX_TCP_PORT) }],
  /** The network process could not start. It sends a code of the error table and its text, and ends after this. */
  network_failed: [21, { code: text(MAX_NAME), message: text(MAX_TEXT) }],
  /** A REST call was refused, or dropped because there were too many. Recorded in the audit log. */
  http_refused: [
    22,
    {
      code: oneOf(HTTP_REFUSALS),
      method: httpText,
      path: httpText,
      host: nullable(httpText),
      origin: nullable(httpText),
      remote: nullable(httpText),
    },
  ],
  /** Sign a request for the rules of this agent to the peer of a link. Link 0 leads to this agent. The reply is signed. */
  sign_rules_request: [23, { ...call, ...link, request_id: requestId, stream_nonce: bytes(NONCE_BYTES) }],
  /** Sign the approval request of an `approval_ask` to the peer of a link. Reply: signed. */
  sign_approval_request: [24, { ...call, ...link, ask: uint(), request_id: requestId, stream_nonce: bytes(NONCE_BYTES) }],
  /** The approver's answer to an `approval_ask`, as an encoded exec-frame. */
  approval_answer: [25, { ask: uint(), frame: bytes(1, MAX_SEALED_FRAME) }],
  /** Reply to `ping`. */
  pong: [26, {}],
  /** Evaluate the trust rules for a pair. Reply: result. */
  evaluate_trust: [27, { ...call, agent: id32, machine: id32 }],
  ...DETACHED_REQUEST_MESSAGES,
  /** An operator proved this fan-out, exactly as `proven`. Each of its hosts may be asked once until `fanout_over`. The reply is result. */
  prove_fanout: [33, { ...call, fanout: requestId, proven: bytes(1, MAX_PROVEN_REQUEST), proof: text(MAX_TEXT) }],
  /** No more hosts of the fan-out will be asked. Reply: result. */
  fanout_over: [34, { ...call, fanout: requestId }],
  /** Like sign_request, for a detached run. Reply: signed. */
  sign_detach_request: [
    35,
    {
      ...call,
      ...link,
      request_id: requestId,
      stream_nonce: bytes(NONCE_BYTES),
      argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
      cwd: nullable(text(MAX_TEXT)),
      clamp: bool,
      lifetime_ms: nullable(uint()),
      keep_bytes: nullable(uint()),
      proven: bytes(0, MAX_PROVEN_REQUEST),
      proof: text(MAX_TEXT),
    },
  ],
  /** Sign a request about a detached run that this agent requested, to the peer of a link. The reply is signed. */
  sign_detached_ask: [
    36,
    { ...call, ...link, request_id: requestId, stream_nonce: bytes(NONCE_BYTES), ask: oneOf(DETACHED_ASKS), from: uint() },
  ],
  /** Like sign_request, for a run on a terminal. Reply: signed. */
  sign_terminal_request: [
    37,
    {
      ...call,
      ...link,
      request_id: requestId,
      stream_nonce: bytes(NONCE_BYTES),
      argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
      timeout_ms: nullable(uint()),
      clamp: bool,
      ...TERMINAL_FIELDS,
      proven: bytes(0, MAX_PROVEN_REQUEST),
      proof: text(MAX_TEXT),
    },
  ],
  /** Sign input of a terminal whose request this executor process signed. Reply: signed. */
  sign_terminal_input: [38, { ...call, request_sha256: bytes(32), seq: uint(), data: typedBytes, size: newTerminalSize }],
  /** A target denied a Request with `draining`. `body` is its encoded Exit. A Request that an operator proved may then be signed again. */
  request_denied: [39, { request_id: requestId, body: bytes(1, MAX_FRAME_DATA), signature: bytes(AGENT_SIGNATURE_BYTES) }],
  /** What local clients wait for, as a `WorkList` in JSON. Sent after `drain`, and after each change until the drain is over. */
  client_work: [40, { json: text(MAX_WORK_JSON) }],
  /** Make the request of an `enrol_ask` for the peer of a link, with the addresses of this daemon. Reply: enrol_frame. */
  enrol_sign: [
    41,
    {
      ...call,
      ...link,
      ask: uint(),
      request_id: requestId,
      stream_nonce: bytes(NONCE_BYTES),
      addresses: list(address, MAX_CARD_ADDRESSES),
    },
  ],
  /** The operator's answer to an `enrol_ask`, as an encoded enrol-frame. */
  enrol_answer: [42, { ask: uint(), frame: bytes(1, MAX_SEALED_FRAME) }],
  /** An `enrol_ask` failed. It has a code of the error table and its text. */
  enrol_failed: [43, { ask: uint(), code: text(MAX_NAME), message: text(MAX_TEXT) }],
  /** A host asks for its enrolment on a stream, as an encoded enrol-frame. Reply: enrol_frame. */
  enrol_request: [44, { ...call, ...link, stream_nonce: bytes(NONCE_BYTES), frame: bytes(1, MAX_SEALED_FRAME) }],
})
/** Tags of messages whose number is a run's, and of messages without a reply. */
export const RUN_TAGS: readonly number[] = [11, 12, 13, 17, 18]
export const UNANSWERED_TAGS: readonly number[] = [5, 6, 8, 20, 21, 22, 25, 26, 39, 40, 42, 43]
export type ToExecutor = ValueOf<typeof toExecutor>

export type HttpRefused = Omit<Extract<ToExecutor, { type: 'http_refused' }>, 'type'>

/** An operator proof of a run, as in `sign_request`. */
export type RequestProof = Pick<Extract<ToExecutor, { type: 'sign_request' }>, 'proven' | 'proof'>
export const NO_PROOF: RequestProof = { proven: NO_BYTES, proof: '' }

/** From the executor to the network process. */
export const toNetwork = union('to-network', {
  welcome: [
    0,
    {
      ...call,
      version: uint(),
      agent_id: id32,
      machine_id: id32,
      agent_public_key: bytes(AGENT_PUBLIC_KEY_BYTES),
    },
  ],
  /** `handle` names the handshake until link_ready. */
  link_opened: [1, { ...call, handle: uint(), m1: bytes(1, MAX_LINK_FRAME) }],
  link_accepted: [2, { ...call, handle: uint(), m2_core: bytes(1, MAX_LINK_FRAME), agent_signature: bytes(AGENT_SIGNATURE_BYTES) }],
  /** Both signatures are valid. `agent_signature` is ours for M3 if we are the initiator, else empty. */
  link_ready: [3, { ...call, ...link, agent_id: id32, decision: oneOf(TRUST_DECISIONS), agent_signature: bytes(0, AGENT_SIGNATURE_BYTES) }],
  nonces: [4, { ...call, nonces: list(bytes(NONCE_BYTES), MAX_NONCES_PER_PEER) }],
  signed: [5, { ...call, body: bytes(1, MAX_SEALED_FRAME), signature: bytes(AGENT_SIGNATURE_BYTES, MAX_BATCH_SIGNATURE_BYTES) }],
  result: [6, { ...call, json: text(MAX_PORT_MESSAGE) }],
  /** The call failed. The reply has a code of the error table, its text, and its data as JSON. */
  failed: [7, { ...call, code: text(MAX_NAME), message: text(MAX_TEXT), data: text(MAX_SEALED_FRAME) }],
  /** A frame for the peer, in order. */
  run_frame: [8, { ...run, frame: bytes(1, MAX_SEALED_FRAME) }],
  /** No more frames come for this run. Its stream may be closed. */
  run_closed: [9, run],
  /** Sent after hello and after every change. Consecutive parts of a `Snapshot` as JSON in UTF-8. */
  snapshot: [10, { part: bytes(1, MAX_SNAPSHOT_PART), last: bool }],
  /** The decision about a link changed. Close the link unless it is accept, accept_with_flag or unknown. */
  link_decision: [11, { ...link, decision: oneOf(TRUST_DECISIONS) }],
  /** Revocations, ours and known ones, for the peer of a link. */
  link_revocations: [12, { ...link, items: list(bytes(1, MAX_CARD_BYTES), MAX_REVOCATIONS_PER_LINK) }],
  /** Settings of docs/config.md under their names, and the secrets that the network process needs for Noise and for the API. */
  settings: [
    13,
    {
      ...call,
      display_name: text(MAX_NAME),
      api_port: uint(MAX_TCP_PORT),
      listen: list(address, MAX_CONFIG_ADDRESSES),
      announce: list(address, MAX_CONFIG_ADDRESSES),
      bootstrap: list(address, MAX_CONFIG_ADDRESSES),
      keep: list(id32, MAX_KEPT_AGENTS),
      relay: bool,
      relays: list(address, MAX_CONFIG_ADDRESSES),
      dht: oneOf(DHT_CHOICES),
      mdns: bool,
      strangers: bool,
      log_level: oneOf(LOG_LEVELS),
      /** Seed of the machine's Ed25519 key. */
      machine_seed: bytes(SEED_BYTES),
      ...apiTokens,
      /** Destination of traces, or null if tracing is off. */
      otlp: nullable(text(MAX_ADDRESS_TEXT)),
    },
  ],
  /** Answer the clients and end, because every program is over. */
  stop: [14, {}],
  /** Connect to this agent and have approval request `ask` signed for the stream to it. */
  approval_ask: [15, { ask: uint(), agent_id: id32 }],
  /** The approval is not needed any more. Close the stream. */
  approval_withdrawn: [16, { ask: uint() }],
  /** Reply with pong at once. */
  ping: [17, {}],
  /** A run has reached a stage in the executor. Only sent if tracing is on. */
  run_stage: [18, { request_id: requestId, stage: oneOf(STAGES), at_us: uint() }],
  /** Tokens that replace those of `settings`. */
  caller_tokens: [19, apiTokens],
  /** While true, refuse new requests of local clients, and report the others with `client_work`. Sent after hello if true, and after each change. */
  drain: [20, { on: bool }],
  /** Connect to this operator and have the request of enrolment `ask` made for the stream to it. */
  enrol_ask: [21, { ask: uint(), agent_id: id32, machine_id: id32, addresses: list(address, MAX_ENROL_ADDRESSES) }],
  /** An encoded enrol-frame for the peer. */
  enrol_frame: [22, { ...call, frame: bytes(1, MAX_SEALED_FRAME) }],
})
export type ToNetwork = ValueOf<typeof toNetwork>

/** The daemon's configuration for the network process. */
export type NetworkSettings = Omit<Extract<ToNetwork, { type: 'settings' }>, 'type' | 'id'>

export type ApiTokens = Omit<Extract<ToNetwork, { type: 'caller_tokens' }>, 'type'>

/** An operator that the executor wants to ask for the enrolment of this machine. */
export type EnrolAsk = Omit<Extract<ToNetwork, { type: 'enrol_ask' }>, 'type'>
