import { REFUSAL_LINES, REFUSAL_TOTAL_LINES } from '../../src/journal/refusals.ts'
import * as approvals from '../../src/protocol/limits/approvals.ts'
import * as daemon from '../../src/protocol/limits/daemon.ts'
import * as detached from '../../src/protocol/limits/detached.ts'
import * as enrolment from '../../src/protocol/limits/enrolment.ts'
import * as events from '../../src/protocol/limits/events.ts'
import * as files from '../../src/protocol/limits/files.ts'
import * as fleet from '../../src/protocol/limits/fleet.ts'
import * as mesh from '../../src/protocol/limits/mesh.ts'
import * as page from '../../src/protocol/limits/page.ts'
import * as rexd from '../../src/protocol/limits/rexd.ts'
import * as terminal from '../../src/protocol/limits/terminal.ts'
import * as tools from '../../src/protocol/limits/tools.ts'
import * as wire from '../../src/protocol/limits/wire.ts'
import { table } from './table.ts'

const refusals = { REFUSAL_LINES, REFUSAL_TOTAL_LINES } as const
const MODULES = { approvals, daemon, detached, enrolment, events, files, fleet, mesh, page, refusals, rexd, terminal, tools, wire } as const

/**
 * A limit in plain words, its value, and what happens when it is reached. In the value, `{NAME}` is replaced by a constant, `{NAME bytes}`
 * by a size, and `{NAME percent}` by a share. A name that two modules export is written with its module, as in `{events.MAX_SESSION_NAME}`.
 */
type Row = readonly [limit: string, value: string, effect: string]

const ROWS: Readonly<Record<string, readonly Row[]>> = {
  Commands: [
    ['Arguments of a command', '{MAX_ARGV_TOKENS}', '`bad_request`'],
    ['Size of all arguments', '{MAX_ARGV_BYTES bytes}', '`bad_request`'],
    ['Stdin from a file', '{MAX_STDIN_BYTES bytes}', '`too_large`'],
    ['Stdin from a pipe or terminal', '{MAX_STDIN_SPOOL bytes}', '`too_large`'],
    ['Stdin that all runs on a target hold', '{MAX_STDIN_HELD bytes}', '`concurrency_limit_reached`'],
    ['Open runs on a target', '{MAX_PORT_RUNS}; {MAX_RUNS_PER_PEER} per agent', 'no answer'],
    ['Output that the requester has not read', '{MAX_UNACKED_PER_RUN bytes}; all runs {MAX_UNACKED_TOTAL bytes}', 'the program pauses'],
    ['Silence of the requester (lease)', '{LEASE_EXPIRES_MS}', 'the target ends the run: `lease_expired`'],
    ['Time after SIGTERM', '{KILL_GRACE_MS}', 'SIGKILL'],
    ['SIGTERM before the time limit of the ACL', '{DURATION_TERM_LEAD_MS}, or 50 % of a short limit', 'SIGKILL at the limit'],
    ['Time for all commands when the daemon stops', '{SHUTDOWN_MS}', 'SIGKILL comes after {SHUTDOWN_KILL_MS}'],
    ['Time to take the results of commands that such a stop ended', '{SHUTDOWN_EXITS_MS}', 'the requester reports `incomplete`'],
    ['Time for runs to end before a restart (`--drain`)', 'at most {MAX_DRAIN_MS}', 'x0x ends the rest, and reports it'],
    ['Requests to a draining target', '{DRAIN_WAIT_MS}; {RESTART_WAIT_MS} while it does not answer', '`draining`'],
    ['Pause between such requests', '{DRAIN_FIRST_PAUSE_MS}, doubled up to {DRAIN_LONGEST_PAUSE_MS}', 'the requester waits'],
    ['Work that a drain lists', '{MAX_WORK_LISTED} runs', 'x0x counts the rest'],
    ['Output after the program has ended', '{MAX_LEFT_IN_PIPES bytes}', '`output_lost`'],
    ['Remembered request IDs', '{MAX_RECENT_RUNS}', 'x0x forgets the oldest'],
    ['Description of an ACL entry', '{MAX_DESCRIPTION_BYTES bytes}', '`bad_acl`'],
    ['Commands that `x0x acl mine` lists', '{MAX_RULES}, {MAX_RULES_BYTES bytes}', 'x0x counts the rest'],
    ['Denials to one agent', '{DENIAL_BURST}, then {DENIALS_PER_SECOND} per second', 'no answer'],
    ['Direct message', '{MAX_DIRECT_PAYLOAD bytes}', '`too_large`'],
  ],
  'Fan-outs and groups': [
    ['Hosts of a fan-out', '{MAX_FANOUT_HOSTS}', '`bad_request`'],
    ['Hosts at once', '{DEFAULT_FANOUT_PARALLEL} by default, at most {MAX_FANOUT_PARALLEL}', '`bad_request`'],
    ['Fan-outs of a daemon at once', '{MAX_FANOUTS}', '`rate_limited`'],
    ['Runs of all fan-outs at once', '{MAX_FANOUT_RUNS}; at least {FANOUT_LEAST_RUNS} per fan-out', 'hosts wait'],
    ['Groups', '{MAX_GROUPS}, with {MAX_GROUP_WORDS} words', '`bad_groups`'],
    ['Labels of a contact', '{MAX_LABELS} of {MAX_LABEL_TEXT} characters', '`bad_request`'],
    ['Hosts of `exec_fleet`', '{MAX_FLEET_HOSTS}; at once {DEFAULT_FLEET_PARALLEL}, at most {MAX_FLEET_PARALLEL}', 'invalid call'],
  ],
  Enrolment: [
    ['Hosts of one enrolment key', '{MAX_ENROL_USES}', '`bad_request`'],
    ['Life of an enrolment key', 'from {MIN_ENROL_MS} to {MAX_ENROL_MS}', '`bad_request`'],
    ['Enrolment keys of a daemon', '{MAX_ENROL_KEYS}', 'x0x forgets the oldest that ended, or `conflict`'],
    ['ACL entries of an enrolment key', '{MAX_ENROL_ACL bytes}', '`bad_acl`'],
    ['Addresses in a token', '{MAX_ENROL_ADDRESSES}', 'the first ones are used'],
    ['Answers to wrong tokens, all peers together', '{ENROL_GUESS_BURST}, then {ENROL_GUESSES_PER_SECOND} per second', 'no answer'],
    ['Pause between two attempts of a host', '{ENROL_RETRY_MS}, doubled up to {MAX_ENROL_RETRY_MS}', 'it asks again'],
  ],
  'Files of other agents': [
    ['Bytes of one `@read` or `@write`', '{MAX_FILE_CHUNK_BYTES bytes}', '`argv_not_allowed`, `stdin_too_large`'],
    ['Bytes of one `@append`', '{MAX_APPEND_BYTES bytes}', '`EFBIG`, `too_large`'],
    ['Entries of one listing', '{MAX_FILE_LIST}', 'x0x counts the rest'],
    ['Path', '{MAX_FILE_PATH_BYTES bytes}', '`argv_not_allowed`'],
    ['Error of a file command', '{MAX_FILE_ERROR_BYTES bytes}', 'the text is cut'],
    ['Unfinished uploads of a requester', '{MAX_UPLOADS_PER_OWNER}', '`EDQUOT`'],
    ['Time that an unfinished upload is kept', '{UPLOAD_EXPIRES_MS}', 'the target removes it'],
    ['Time that a `@write` waits for the one before it', '{UPLOAD_WAIT_MS}', '`ESPIPE`'],
    ['Files that `max_total_bytes` counts', '{MAX_COUNTED_FILES}', '`resource_limit`'],
  ],
  'Detached runs': [
    [
      'Runs that a target keeps',
      '{MAX_DETACHED_RUNS}; {LEAST_DETACHED_PER_AGENT} to {MAX_DETACHED_PER_AGENT} per agent',
      '`concurrency_limit_reached`',
    ],
    [
      'Output that a target keeps',
      '{MAX_DETACHED_BYTES bytes}; {LEAST_DETACHED_BYTES_PER_AGENT bytes} to {MAX_DETACHED_BYTES_PER_AGENT bytes} per agent',
      '`concurrency_limit_reached`',
    ],
    ['Output and status after the end', '{DETACHED_KEPT_MS}', 'the target removes the output'],
    ['Request ID after that', '{DETACHED_REMEMBERED_MS}, {MAX_DETACHED_REMEMBERED} IDs', 'the target forgets it'],
    ['Runs that the requester remembers', '{MAX_ASKED_RUNS}', 'it forgets the oldest ended run, else `rate_limited`'],
    [
      'Readers',
      '{MAX_ATTACHED_PER_RUN} of a run, {MAX_ATTACHED_PER_AGENT} of an agent, {MAX_ATTACHED} in all',
      '`concurrency_limit_reached`',
    ],
    ['Queries of one agent', '{DETACHED_ASKS}', 'no answer'],
    ['Cancellations of one agent', '{DETACHED_CANCELS}', 'no answer'],
    ['Reconnection of an attached client', '{REATTACH_MS}', 'the client gives up; the run continues'],
  ],
  Terminals: [
    ['Columns or rows', '{MAX_MESH_TERMINAL_SIDE}', '`bad_request`'],
    ['Typed bytes that the program has not read', '{MAX_TERMINAL_UNACKED bytes}', 'x0x stops reading your keys'],
    ['Frames of input per second', '{TERMINAL_FRAMES_PER_SECOND}, after {TERMINAL_FRAME_BURST}', 'the rest waits'],
    ['Time between two changes of the size', '{TERMINAL_RESIZE_MS}', 'the last size counts'],
    [
      'Input of all terminals of a daemon',
      '{TERMINAL_BYTE_BURST bytes}, then {TERMINAL_BYTES_PER_SECOND bytes} per second',
      'the rest waits',
    ],
    ['One recording', '{MAX_RECORDING bytes}', 'the command is ended (`recording_failed`)'],
    ['Recordings of one agent', '{MAX_AGENT_RECORDINGS bytes}, {MAX_RECORDING_FILES_PER_AGENT} files', '`recording_unavailable`'],
    ['All recordings', '{MAX_RECORDINGS bytes}, {MAX_RECORDING_FILES} files', '`recording_unavailable`'],
    ['Age of a recording', '{RECORDING_DAYS} days', 'x0x removes it'],
    ['Output that is not on disk', '{MAX_RECORDING_UNWRITTEN bytes}', 'the program waits'],
    ['Time until output is on disk', '{RECORDING_WRITE_MS}', 'a power failure loses it'],
  ],
  'REST API': [
    ['Request body without stdin', '{MAX_SMALL_BODY bytes}', '`too_large`'],
    ['Output in one answer', '{MAX_AGGREGATED_OUTPUT bytes}', '`truncated`: stream it'],
    ['Age of an operator proof', '{OPERATOR_PROOF_MS}', '`operator_proof_required`'],
    ['Size of the request log', '{ASKED_BYTES bytes}', '`rate_limited`'],
    [
      'Free disk space for the audit log',
      '{MIN_FREE_BYTES bytes}, or {MIN_FREE_SHARE percent} of a smaller disk; request log {ASKED_FLOORS} times as much',
      '`journal_unavailable`',
    ],
    ['Refusals of one source in a log', '{REFUSAL_LINES}', '`refusals_suppressed` counts the rest'],
    ['Refusals of all trusted agents; of all unlisted peers', '{REFUSAL_TOTAL_LINES}', 'the same'],
    ['Unread events of `/direct/events`', '{MAX_EVENT_BACKLOG}', 'x0x disconnects the reader'],
    ['Run events per label', '{MAX_KEPT_EVENTS}, {MAX_EVENT_SESSIONS} labels', 'x0x drops the oldest'],
    ['Characters of a run label', '{events.MAX_SESSION_NAME}', '`bad_request`'],
    ['Output in the last run event', '{MAX_EVENT_TAIL} characters', 'the event has the end of the output'],
  ],
  'REXD and files': [
    ['Message', '{MAX_RPC_MESSAGE bytes}', 'the request is refused'],
    ['Requests in a batch', '{MAX_RPC_BATCH}', 'the batch is refused'],
    ['File content in one message', '{MAX_FILE_CHUNK bytes}', '`resource_limit`'],
    ['Stdin in one message', '{MAX_INLINE_STDIN bytes}', '`resource_limit`'],
    ['Roots of a session', '{MAX_ROOTS}', '`bad_request`'],
    ['Entries or matches in an answer', '{MAX_LISTED}, {MAX_LISTED_BYTES bytes}', '`truncated`'],
  ],
  'MCP tools and transcripts': [
    ['Time for an answer', '{DEFAULT_ANSWER_WITHIN_MS}, at most {MAX_ANSWER_WITHIN_MS}', 'the command continues in the background'],
    ['Time for a command', '{DEFAULT_TOOL_SECONDS} s, at most {MAX_TOOL_SECONDS} s', 'x0x ends it'],
    [
      'Output in a result',
      'stdout {DEFAULT_STDOUT_BYTES bytes}, stderr {DEFAULT_STDERR_BYTES bytes}, at most {MAX_VIEW_BYTES bytes}',
      'x0x cuts it',
    ],
    ['Arguments of a command', '{MAX_TOOL_ARGUMENTS}', 'invalid call'],
    ['Stdin', '{MAX_TOOL_STDIN bytes}', 'invalid call'],
    ['Entries in a listing', '{DEFAULT_LISTED}, at most {MAX_TOOL_LISTED}', 'x0x cuts it'],
    ['Idempotency keys', '{MAX_KEYS} of {MAX_KEY_LENGTH} characters', 'x0x searches the audit log'],
    ['Transcript', '{MAX_TRANSCRIPT_OUTPUT bytes} per command, {MAX_TRANSCRIPT_FILE bytes} per file', 'cut; continued in a new file'],
    ['All transcripts of a user', '{MAX_TRANSCRIPTS bytes}', 'x0x removes the oldest'],
  ],
  Sandbox: [
    ['Processes and threads', '{DEFAULT_SANDBOX_PROCESSES} by default', 'no new process'],
    ['Each in-memory directory', '{SANDBOX_TMP_BYTES bytes}', 'no space left'],
    ['Image', '{MAX_IMAGE_BYTES bytes}, {MAX_IMAGE_FILES} files, unpacked within {IMAGE_UNPACK_MS}', '`sandbox_unavailable`'],
  ],
  Approvals: [
    ['Time to decide', '{ASK_TIMEOUT_MS}, at most {MAX_ASK_TIMEOUT_MS}', '`approval_timeout`'],
    ['Pending requests', '{MAX_QUESTIONS}; {MAX_QUESTIONS_OF_ASKER} per requester', 'denied at once'],
    ['Requests of one requester', '{QUESTION_RATE}', 'denied at once, and counted'],
    ['Runs of mesh agents that wait', '{MAX_WAITING_RUNS}; {MAX_WAITING_OF_AGENT} per agent', 'denied at once'],
    ['Approval requests of one mesh agent', '{QUESTION_BURST}, then {QUESTIONS_PER_SECOND} per second', 'denied at once'],
    ['Approval to read a version of a file', '{APPROVED_READ_MS}', 'the approver is asked again'],
    ['Such approvals of all mesh agents', '{MAX_APPROVED_READS}', 'x0x forgets the oldest, and asks again'],
    ['Approvers of an ACL entry', '{MAX_MESH_APPROVERS}', '`bad_acl`'],
    ['Text of a request; its stdin', '{MAX_SHOWN_QUESTION bytes}; {MAX_SHOWN_STDIN bytes}', 'it cannot be approved'],
    ['Grant "always"', '{GRANT_MS}, at most {MAX_GRANT_MS}', 'the approver is asked again'],
    ['The same for an opaque command', '{OPAQUE_GRANT_MS}, at most {MAX_OPAQUE_GRANT_MS}', 'the approver is asked again'],
    ['Link from `x0x ui`', '{PAGE_LINK_MS}', 'run `x0x ui` again'],
    ['Runs that the page of `x0x ui` lists', '{MAX_PAGE_RUNS}', 'the logs have the rest'],
    ['Contacts that one change on the page takes', '{MAX_PAGE_CONTACTS}', 'the page selects no more'],
    ['Approval page', '{PAGE_IDLE_MS} unused, {PAGE_SESSION_MS} in all, {MAX_PAGE_SESSIONS} tabs', 'x0x signs it out'],
  ],
  Mesh: [
    ['Difference between two clocks', '{MAX_CLOCK_SKEW_MS}', 'x0x rejects cards and requests'],
    ['Validity of a card', '{CARD_TTL_MS}', 'import a new one'],
    ['Addresses in a card', '{MAX_CARD_ADDRESSES}', '`bad_card`'],
    ['Time for one address; for all', '{ADDRESS_DIAL_MS}; {DIAL_MS}', '`peer_unreachable`'],
    ['Dials at once', '{MAX_PARALLEL_DIALS}', 'dials wait'],
    ['Connections', '{MAX_CONNECTIONS}; {MAX_UNLISTED_CONNECTIONS} of unlisted peers', 'x0x closes one of the peer or host that has most'],
    ['Machines of one agent', '{MAX_MACHINES_PER_AGENT}; {MAX_CONNECTIONS_PER_AGENT} connections', 'x0x closes the oldest'],
    ['Persistent connections to contacts', '{MAX_STANDING_CONNECTIONS}, and {MAX_KEPT_AGENTS} in `keep`', 'connections on demand'],
    ['Pings of one agent', '{PING_BURST}, then {PINGS_PER_SECOND} per second', 'no answer'],
    ['Reservations at a relay', '{MAX_RESERVATIONS}, each {RESERVATION_MS}', 'refused'],
    ['Relayed connections', '{MAX_CARRIED}; {MAX_CARRIED_OF_MACHINE} per agent', 'refused'],
    ['One relayed connection', '{MAX_CARRIED_BYTES bytes}, {MAX_CARRIED_MS}', 'it ends; runs continue on the next'],
  ],
}

/**
 * Constants that users do not need to know. They are sizes of formats, shares of a limit that has a row, and limits that the program
 * reports when they matter.
 */
const INTERNAL = `
  ENROL_SECRET_BYTES ENROL_KEY_ID_BYTES ENROL_ATTEMPT_BYTES ENROL_MAC_BYTES MAX_ENROL_TOKEN MAX_ENROL_NAMES MAX_ENROL_MESSAGE
  ENROL_ATTEMPT_MS MIN_ENROL_ATTEMPTS ENROL_CONTACT_MS SWEEP_AGAIN_MS
  MAX_TERM_NAME MAX_TERMINAL_DATA MAX_TERMINAL_FRAMES_UNACKED MAX_OWN_TERMINALS TERMINAL_SIGNATURES_PER_SECOND TERMINAL_SIGNATURE_BURST
  MAX_DESK_LINE DESK_SHAPE DESK_FRESH_MS DESK_OPEN_MS DESK_ANSWER_MS MAX_DESK_CONNECTIONS DESK_LINES DESK_EVENTS DESK_OUTPUTS
  DESK_REQUESTS MAX_DESK_NONCES MAX_DESK_UNREAD MAX_DESK_EVENTS_UNREAD MAX_DESK_REPLY MAX_APPROVAL_CLIENT_REQUESTS MAX_DESK_NAME
  DESK_RETRY_MS MAX_RUN_NAME MAX_FOLLOWED_RUNS MAX_KNOWN_RUNS MAX_TOLD_RUNNING FOLLOW_TELL_MS MAX_WAITING_JSON_OF_ASKER MAX_WAITING_JSON
  MAX_CLAIMED_QUESTIONS MAX_CLAIMED_JSON MAX_QUESTIONS_OF_ENGINE UI_GRACE_MS MAX_ASKERS MAX_FLOODS MAX_FLOOD_NAME FLOOD_SUMMARY_MS
  MAX_QUESTION_TEXT MAX_WHY_ASKED MAX_QUESTION_JSON MAX_SHOWN_STDIN_JSON MAX_SETTLED MAX_STORE_BYTES MAX_STORE_AGENTS MAX_ALLOWLIST
  MAX_PATTERN MAX_GRANTS MAX_GRANT_USES LAST_USED_WRITE_MS MAX_LAST_USED_COMMAND MAX_OVERRIDES approvals.MAX_SESSION_NAME MAX_HISTORY
  HISTORY_BYTES RECOVERY_BYTES MAX_APPROVAL_WAIT_MS MAX_APPROVAL_QUESTION MAX_APPROVER_MACHINES APPROVER_RETRY_MS MAX_APPROVER_RETRY_MS
  MAX_APPROVER_ASKS MAX_WAITING_STDIN MAX_WAITING_STDIN_OF_AGENT MAX_WAITING_FRAMES
  MAX_PROVEN_REQUEST TARGET_SILENCE_MS MAX_JOURNAL_LINE MAX_COMMAND_JSON MAX_REFUSED_HTTP_TEXT MAX_JOURNALLED_PATTERN MAX_NAMED_SOURCES
  MAX_NAMED_REASONS MAX_DATAGRAM_BACKLOG MAX_TRACED_RUNS MAX_TRACED_DETACHED NETWORK_START_MS NETWORK_STOP_MS MAX_CONFIG_ADDRESSES
  DRAIN_COUNT_MS DRAIN_POLL_MS DRAIN_REPORT_MS HANDOVER_OPEN_MS MAX_HANDOVER_CONNECTIONS MAX_WORK_ARGV MAX_WORK_JSON
  WATCHDOG_MS MAX_STATUS_TEXT REXD_START_MS REXD_STOP_MS DEFAULT_API_PORT MAX_SANDBOX_READABLE SANDBOX_RETRY_MS SANDBOX_START_MS
  MAX_SANDBOX_LINKS IMAGE_ASK_MS IMAGE_KEPT_MS IMAGE_LEFT_MS IMAGE_SPARED_MS MAX_IMAGES_KEPT
  ASKED_PAGE MAX_ASKED_REQUESTS MAX_ASKED_AT_ONCE MAX_WAITED_RUNS ASK_HOST_MS LEAST_ATTACHED_PER_AGENT ASK_PACE MAX_SPOOL_QUEUE
  DETACHED_ANSWER_MS
  TRUNCATED_SUFFIX MAX_KEPT_CHARACTERS MAX_KEPT_IN_ALL EVENT_COST MAX_EVENTS_AT_ONCE MAX_EVENTS_TEXT EVENTS_TOLD_MS LIVE_OUTPUT_MS
  LIVE_AGAIN_MS MAX_LIVE_AT_ONCE
  FANOUT_READER_MS MAX_FANOUT_DIALS MAX_FANOUT_SIGNING FANOUT_HOSTS_PER_EVENT MAX_HOST_WORDS MAX_NODE_DIGITS MAX_ID_PREFIXES
  MAX_CHOICE_STEPS MAX_SHOWN_NAMES MAX_HOST_TERMS MAX_FLEET_WORD_BYTES FLEET_SPARE_SESSIONS MAX_FLEET_STDIN DEFAULT_FLEET_STDOUT
  DEFAULT_FLEET_STDERR MAX_FLEET_VIEW DEFAULT_FLEET_TOTAL MAX_FLEET_TOTAL MAX_FLEETS_GOING MAX_FLEETS_ENDED MAX_FLEET_DETAIL
  MAX_FLEET_QUESTIONS
  METERED LONGEST_REFILL_MS RATES mesh.MAX_UNPROVEN_CONNECTIONS MAX_CARRIED_OF_PAIR CARRIED_BYTES_PER_SECOND CARRIED_BURST
  MAX_CARRIED_BACKLOG MAX_CARRIED_HELD HOP_MS MAX_OWN_RELAYS ADDRESSES_PER_RELAY MAX_UNLISTED_PER_RELAY RELAYED_IDLE_MS
  RELAYED_DIAL_AFTER_MS DIRECT_RETRY_MIN_MS DIRECT_RETRY_MAX_MS
  PAGE_SECRET_BYTES MAX_PAGE_LINKS MAX_SESSION_STREAMS MAX_PAGE_UNPROVEN MAX_PAGE_BODY MAX_PAGE_HEAD PAGE_REQUEST_MS MAX_PAGE_BEHIND
  MAX_PAGE_EVENTS_BEHIND PAGE_BEAT_MS PAGE_SILENCE_MS PAGE_REQUESTS PAGE_UNLISTED PAGE_NOTES MAX_PAGE_EVENTS MAX_PAGE_EVENTS_JSON
  PAGE_FOLLOW_MS MAX_PAGE_SEARCHED MAX_PAGE_JOURNAL_BYTES MAX_PAGE_ROWS MAX_PAGE_CELLS MAX_PAGE_FILTER MAX_PAGE_RUN_LINES MAX_PAGE_COMMAND
  MAX_PAGE_RUN_HISTORY MAX_PAGE_TAILS MAX_PAGE_FANOUTS PAGE_SHARED_MS PAGE_DAEMON_MS PAGE_PINGS_AT_ONCE PAGE_VERSION_MS MAX_PAGE_VERSIONS
  MAX_PATH MAX_VARIABLES MAX_VARIABLE_TEXT MAX_FILE_PLACES FILE_CALL_SLOTS FILE_LOOK_PLACES MAX_TERMINAL_SIDE MAX_SIGNAL_NAME
  SESSION_CLOSE_MS MAX_RPC_SHAPE MAX_RPC_PENDING MAX_RPC_ID MAX_RPC_BACKLOG HTTP_TRANSFER_MS rexd.MAX_UNPROVEN_CONNECTIONS
  MAX_UNPROVEN_PER_ADDRESS MAX_EVENTS_WAIT_MS
  MIN_ANSWER_WITHIN_MS STATUS_STDERR_BYTES MIN_PART_BYTES MAX_LISTED_RUNS DEFAULT_READ_BYTES MAX_NEXT MAX_JOURNAL_KEYS PROGRESS_MS
  MAX_MCP_MESSAGE MAX_MCP_CALLS MAX_MCP_CALL_BYTES LAST_ANSWERS_MS MAX_MCP_BACKLOG MAX_TRANSCRIPT_LINE MAX_WAITING_ENTRIES
  MAX_WAITING_BYTES TRANSCRIPT_FLOORS CUT_ARGV
  AGENT_PUBLIC_KEY_BYTES AGENT_SIGNATURE_BYTES MAX_BATCH MAX_BATCH_SIGNATURE_BYTES KEM_PUBLIC_KEY_BYTES KEM_CIPHERTEXT_BYTES
  MACHINE_ID_BYTES MACHINE_SIGNATURE_BYTES NONCE_BYTES AEAD_TAG_BYTES SEED_BYTES MIN_ID_PREFIX MAX_FRAME_DATA MAX_SEALED_FRAME
  MAX_LINK_FRAME MAX_PORT_MESSAGE MAX_SNAPSHOT_PART MAX_PORT_BACKLOG MAX_PORT_CALLS MAX_CBOR_DEPTH MAX_CBOR_ITEMS MAX_TEXT MAX_NAME
  MAX_RULES_ITEMS RULES_ANSWER_MS MAX_WARNING_TEXT MAX_ADDRESS_TEXT MAX_CARD_BYTES ACK_EVERY_BYTES ACK_EVERY_MS FIRST_UNACKED_PER_RUN
  MIN_UNACKED_PER_RUN FRAME_COST STDIN_PIECE_BYTES MAX_STDIN_PIECES MAX_PIECES_UNACKED LEASE_RENEW_MS RESUME_ATTEMPT_MS DRAIN_MS
  PORT_FINISH_MS EXIT_WAIT_SLACK_MS MAX_WARNINGS_PER_RUN UNACKED_SLACK MAX_EXIT_STATUS MAX_SIGNAL LINK_VERSION MAX_SUCCESSIONS FOLLOW_MS
  PING_ANSWER_MS LINK_HANDSHAKE_MS LINK_RENEW_MS MAX_NONCES_PER_PEER PEAK_MS MAX_STREAMS_PER_CONNECTION MAX_WAITING_STREAMS
  MAX_EARLY_BYTES MAX_EARLY_PIECES LINK_ID_BYTES MAX_REVOCATIONS_PER_LINK ALL_UNACCEPTED_REQUEST_BURST ALL_UNACCEPTED_REQUESTS_PER_SECOND
  PRESENCES_PER_MINUTE RECORD_TTL_MS MAX_PRESENCE_SECS MAX_PRESENCE_ADDRESSES MAX_PRESENCE_BYTES CARD_ANSWER_MS MAX_CARD_ASK_BYTES
  MAX_UNAWAITED_DIALS MAX_DIAL_ADDRESSES MAX_STREAM_WRITE_BUFFER MAX_MUXER_FRAME MAX_CONNECTION_BACKLOG
`

/** The kinds of work that a peer causes, in words. */
const METERED_WORK: Readonly<Record<mesh.Metered, string>> = {
  bytes: 'Bytes',
  frames: 'Frames of the muxer',
  pings: 'Keep-alive pings',
  streams: 'Streams that it opens',
  resets: 'Streams that it resets',
  messages: 'Gossip messages',
  handshakes: 'Handshakes',
  connections: 'Connections that it opens',
}

const THOUSANDS = /\B(?=(\d{3})+$)/g
const numberText = (value: number): string => String(value).replaceAll(THOUSANDS, ',')

type Units = readonly (readonly [size: number, name: string])[]
const BYTES: Units = [
  [1024 ** 3, 'GiB'],
  [1024 ** 2, 'MiB'],
  [1024, 'KiB'],
  [1, 'bytes'],
]
const TIMES: Units = [
  [86_400_000, 'days'],
  [3_600_000, 'h'],
  [60_000, 'min'],
  [1000, 's'],
  [1, 'ms'],
]

/** Uses the largest unit that divides the value and gives at least 2, so 24 h and not 1 day. */
const inUnits = (value: number, units: Units): string => {
  const [size, name] = units.find(([each]) => value % each === 0 && (value > each || units === BYTES)) ?? [1, '']
  return `${numberText(value / size)} ${name}`.trim()
}

const bytesText = (value: number): string => inUnits(value, BYTES)

const timeText = (value: number): string => inUnits(value, TIMES)

const percentText = (value: number): string => `${value * 100} %`

const isRate = (value: unknown): value is mesh.Rate => typeof value === 'object' && value !== null && 'perSecond' in value

const rateText = ({ burst, perSecond }: mesh.Rate, unit: (value: number) => string): string =>
  `${unit(burst)}, then ${unit(perSecond)} per second`

/** Every constant of the modules under `module.NAME`. */
const CONSTANTS: ReadonlyMap<string, unknown> = new Map(
  Object.entries(MODULES).flatMap(([module, constants]) => Object.entries(constants).map(([name, value]) => [`${module}.${name}`, value])),
)

const fullName = (name: string): string => {
  const [found, ...others] = [...CONSTANTS.keys()].filter((full) => full === name || full.endsWith(`.${name}`))
  if (found === undefined || others.length > 0)
    throw new Error(`deploy/docs/limits.ts: ${name} names ${others.length === 0 ? 'no' : 'more than one'} constant`)
  return found
}

const valueText = (name: string, unit: string | undefined): string => {
  const value = CONSTANTS.get(fullName(name))
  const text = unit === 'bytes' ? bytesText : unit === 'percent' ? percentText : name.endsWith('_MS') ? timeText : numberText
  if (isRate(value)) return rateText(value, text)
  if (typeof value !== 'number') throw new Error(`deploy/docs/limits.ts: ${name} is not a number`)
  return text(value)
}

const PLACEHOLDER = /\{([\w.]+)(?: (bytes|percent))?\}/g
const filled = (text: string): string => text.replaceAll(PLACEHOLDER, (_all, name: string, unit?: string) => valueText(name, unit))

/** Returns the names of `rows` and `internal`, and the constants that are in neither. Throws for a name that is not a constant. */
export const unlistedLimits = (rows: Readonly<Record<string, readonly Row[]>>, internal: string): string[] => {
  const shown = Object.values(rows).flatMap((each) =>
    each.flatMap((cells) => [...cells.join().matchAll(PLACEHOLDER)].map(([, name = '']) => name)),
  )
  const listed = new Set([...shown, ...internal.split(/\s+/).filter((name) => name !== '')].map(fullName))
  return [...CONSTANTS].filter(([name, value]) => typeof value !== 'function' && !listed.has(name)).map(([name]) => name)
}

/** A table for each group of limits. Throws if a constant is neither in a row nor internal. */
export const limits = (): string => {
  const unlisted = unlistedLimits(ROWS, INTERNAL)
  if (unlisted.length > 0) throw new Error(`deploy/docs/limits.ts: give a row to, or list as internal: ${unlisted.join(', ')}`)
  return Object.entries(ROWS)
    .map(
      ([group, rows]) =>
        `## ${group}\n\n${table(
          ['limit', 'value', 'when it is reached'],
          rows.map((cells) => cells.map(filled)),
        )}`,
    )
    .join('\n\n')
}

/** The limits of a peer, by its class. */
export const peerRates = (): string =>
  table(
    ['work', 'unlisted', 'named', 'accepted'],
    mesh.METERED.map((work) => [
      METERED_WORK[work],
      ...[mesh.RATES.unlisted, mesh.RATES.named, mesh.RATES.accepted].map((rates) => {
        const text = work === 'bytes' ? bytesText : numberText
        return `${text(rates[work].burst)} + ${text(rates[work].perSecond)}/s`
      }),
    ]),
  )
