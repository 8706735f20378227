/**
 * Limits of the wire protocol and limits that several folders share, each with its reason. Other limits are defined next to their only
 * user. Times are milliseconds unless the name says seconds. Sizes are bytes.
 */

// ---- identity (FIPS 203, FIPS 204, RFC 8032) ----
/** ML-DSA-65 public key, FIPS 204 table 2. */
export const AGENT_PUBLIC_KEY_BYTES = 1952
/** ML-DSA-65 signature, FIPS 204 table 2. */
export const AGENT_SIGNATURE_BYTES = 3309
/** Statements that one signature covers. They arrive while another signature is made. */
export const MAX_BATCH = 128
/** … and the longest signature of one of them, which adds its index in the batch and seven hashes. */
export const MAX_BATCH_SIGNATURE_BYTES = AGENT_SIGNATURE_BYTES + 2 + 7 * 32
/** ML-KEM-768 encapsulation key, FIPS 203 table 3. */
export const KEM_PUBLIC_KEY_BYTES = 1184
/** ML-KEM-768 ciphertext, FIPS 203 table 3. */
export const KEM_CIPHERTEXT_BYTES = 1088
/** Ed25519 public key, which is the MachineId itself (RFC 8032). */
export const MACHINE_ID_BYTES = 32
/** Ed25519 signature (RFC 8032). */
export const MACHINE_SIGNATURE_BYTES = 64
export const NONCE_BYTES = 32
/** ChaCha20-Poly1305 tag (RFC 8439). */
export const AEAD_TAG_BYTES = 16
/** Secret of a key, ML-DSA-65 (FIPS 204, ξ) or Ed25519 (RFC 8032), and an API token. */
export const SEED_BYTES = 32
/** Shortest ID prefix that a person may type. */
export const MIN_ID_PREFIX = 6

// ---- frames ----
/** Data of one Stdout, Stderr or Stdin frame. With envelope and tag it fits one Noise message (65,535). */
export const MAX_FRAME_DATA = 60 * 1024
/** One encrypted frame on a stream. A Noise message has 65,519 bytes of payload. Yamux and the length prefix need some of them. */
export const MAX_SEALED_FRAME = 65_400
/** One frame of the link handshake. The largest (M2) has about 6.6 KiB. */
export const MAX_LINK_FRAME = 16 * 1024
/** One message between network process and executor. It holds the data of an encrypted frame and the fields around it. */
export const MAX_PORT_MESSAGE = 4 * 1024 * 1024
/** One part of a snapshot. Thousands of contacts need several, and other messages pass between them. */
export const MAX_SNAPSHOT_PART = 1024 * 1024
/** Unread bytes of the network process after which the executor stops reading from it. Two runs' windows fit. */
export const MAX_PORT_BACKLOG = 16 * 1024 * 1024
/** Concurrent calls of the network process, many times a 32-way fan-out. */
export const MAX_PORT_CALLS = 1_024
/** Runs that the network process may hold open. A sensible `max_concurrent_total` is far lower. */
export const MAX_PORT_RUNS = 1_024
/** … and those of one agent, with pending denials, so that others are still answered. */
export const MAX_RUNS_PER_PEER = 256
/** Accepted nesting of CBOR arrays. The deepest message needs three. */
export const MAX_CBOR_DEPTH = 4
/** Items of one CBOR message at any nesting. The longest list is argv. */
export const MAX_CBOR_ITEMS = 4096
export const MAX_ARGV_TOKENS = 1024
/** All tokens of one argv. A Request must fit one frame with its signature. */
export const MAX_ARGV_BYTES = 32 * 1024
/** A path or a short text in a message. */
export const MAX_TEXT = 4096
export const MAX_NAME = 64
/** Description of an ACL entry in bytes, or some sentences. It is in each audit log line of a run and in each rule of `MAX_RULES`. */
export const MAX_DESCRIPTION_BYTES = 512
/** Commands in one reply about permitted commands. No person or program chooses from more. */
export const MAX_RULES = 256
/** … and their size, so that they fit one frame with a signature. Omitted ones are counted. */
export const MAX_RULES_BYTES = 48 * 1024
/** … and their CBOR items, below MAX_CBOR_ITEMS. */
export const MAX_RULES_ITEMS = 3840
/** Time to wait for such a reply on one stream. */
export const RULES_ANSWER_MS = 5_000
export const MAX_WARNING_TEXT = 512
/** Payload of one direct message, which fits one frame. */
export const MAX_DIRECT_PAYLOAD = 48 * 1024
/** Addresses in one card. More would be a mistake, or an attack that causes dials. */
export const MAX_CARD_ADDRESSES = 16
/** One multiaddr as text. */
export const MAX_ADDRESS_TEXT = 256
/** An encoded card. It has room for a key, a signature and the addresses. */
export const MAX_CARD_BYTES = 12 * 1024

// ---- flow ----
/** Maximum unacknowledged data before an acknowledgement, … */
export const ACK_EVERY_BYTES = 512 * 1024
/** … and the longest time before one. */
export const ACK_EVERY_MS = 50
/** Unacknowledged output of one run before its pipe is paused. At 40 MB/s, 8 MiB last 200 ms. */
export const MAX_UNACKED_PER_RUN = 8 * 1024 * 1024
/** The same before the first acknowledgement. It grows with what is acknowledged. Four times the muxer's first window. */
export const FIRST_UNACKED_PER_RUN = 1024 * 1024
/** Unacknowledged output of all runs before all pipes are paused. */
export const MAX_UNACKED_TOTAL = 64 * 1024 * 1024
/** … except those of runs below this size, so that slow readers do not stop fast ones. */
export const MIN_UNACKED_PER_RUN = 512 * 1024
/** Size of a frame without its data for these limits, so that many tiny frames are also bounded. */
export const FRAME_COST = 256
/** Stdin that a daemon holds in memory until its end, to hash and sign it. */
export const MAX_STDIN_SPOOL = 64 * 1024 * 1024
/** Size of signed pieces of stdin. A piece is fed once its hash matches, so a run buffers little. Most stdin is one piece. */
export const STDIN_PIECE_BYTES = 1024 * 1024
/** Pieces of stdin. Their hashes, 34 bytes each, fit a Request with its argv. */
export const MAX_STDIN_PIECES = 512
/** Maximum stdin of a mesh run. */
export const MAX_STDIN_BYTES = MAX_STDIN_PIECES * STDIN_PIECE_BYTES
/** Stdin of one run sent ahead of acknowledgement. At 100 ms it allows 40 MB/s. */
export const MAX_PIECES_UNACKED = 4 * STDIN_PIECE_BYTES
/** … and of all runs together. A Request beyond it is denied like one beyond the maximum of concurrent runs. */
export const MAX_STDIN_HELD = 128 * 1024 * 1024
/** Output in one REST response. Above it, the client must stream. */
export const MAX_AGGREGATED_OUTPUT = 64 * 1024 * 1024

// ---- leases and runs ----
/** A requester renews its lease at least every two seconds. x0x does so twice as often, to notice silence in time to resume. */
export const LEASE_RENEW_MS = 1_000
/** Silence after which a requester counts as disconnected. The child then gets SIGTERM within 5 s of its disappearance. */
export const LEASE_EXPIRES_MS = 4_000
/** One attempt to reconnect to the machine of a run. It lasts six round trips of 300 ms. */
export const RESUME_ATTEMPT_MS = 2_000
/** From SIGTERM to SIGKILL. */
export const KILL_GRACE_MS = 5_000
/** After the program's end, time to read pipes that a descendant holds open. */
export const DRAIN_MS = 250
/** Time for a shutdown to end all children. */
export const SHUTDOWN_MS = 3_000
/** Time after which a shutdown sends SIGKILL. It leaves time for the audit log and the Exits. */
export const SHUTDOWN_KILL_MS = 2_000
/** Time that a stopping daemon waits until connected requesters have taken their Exits. A closing connection can lose what it still carries. */
export const SHUTDOWN_EXITS_MS = 800
/** Time that a stopping executor waits for the network process to read what it was sent. */
export const PORT_FINISH_MS = 500
/** SIGTERM precedes the maximum duration by this. If the duration is shorter than twice this, SIGTERM is sent at its middle. */
export const DURATION_TERM_LEAD_MS = 5_000
/** Time to wait for Exit after the run's own timeout before the run counts as incomplete. */
export const EXIT_WAIT_SLACK_MS = 15_000
/** Warnings of one run that a requester accepts. Each kind once makes 18. */
export const MAX_WARNINGS_PER_RUN = 64
/** Output that may arrive beyond the window. 1 MiB was in flight when the pipe was paused. The rest is MAX_LEFT_IN_PIPES. */
export const UNACKED_SLACK = 5 * 1024 * 1024
/** Largest exit status (POSIX `wait`). A larger one would be cut to its last byte, so that 256 would become success. */
export const MAX_EXIT_STATUS = 255
export const MAX_SIGNAL = 127
/** Ended runs whose request ID is remembered on either side to prevent its reuse. */
export const MAX_RECENT_RUNS = 4096

// ---- links ----
/**
 * The only supported link version. Both sides must list it. A peer with another version gets the error `upgrade`. Increase it with each
 * change of the handshake or of a frame on a link.
 */
export const LINK_VERSION = 9
/** Successive keys of an agent that a contact follows. Each step costs two signatures, and all fit one frame. */
export const MAX_SUCCESSIONS = 4
/** Time to follow a named agent to a new key on the same machine. The executor verifies two signatures and writes two files. */
export const FOLLOW_MS = 2_000
/** Pings answered to one accepted agent. People type fewer. */
export const PING_BURST = 20
export const PINGS_PER_SECOND = 10
/** Time to wait for a pong. */
export const PING_ANSWER_MS = 5_000
/** Time to wait for a handshake message of the peer. Own computing time does not count. */
export const LINK_HANDSHAKE_MS = 5_000
export const LINK_RENEW_MS = 24 * 60 * 60 * 1000
/** Open stream nonces of one (agent, machine). */
export const MAX_NONCES_PER_PEER = 128
/** How long a peak is remembered. */
export const PEAK_MS = 30_000
/** Streams of the x0x protocol that one connection may open to this daemon. */
export const MAX_STREAMS_PER_CONNECTION = 256
/** Streams of one connection that the peer opened and has not used. */
export const MAX_WAITING_STREAMS = 96
/** Bytes that may arrive together with M3 before the stream is paused. One read of the socket fits. */
export const MAX_EARLY_BYTES = MAX_LINK_FRAME + 2 * MAX_SEALED_FRAME
/** Chunks of those bytes, because each costs far more memory than its bytes. */
export const MAX_EARLY_PIECES = 64
/** ID of a link on the wire, which is the start of the transcript hash. */
export const LINK_ID_BYTES = 8
/** Revocations that one side may send over one link, in all lists together. */
export const MAX_REVOCATIONS_PER_LINK = 64
/** Requests answered to all unaccepted peers together, because each can make any number of links. */
export const ALL_UNACCEPTED_REQUEST_BURST = 128
export const ALL_UNACCEPTED_REQUESTS_PER_SECOND = 8

/** Denials answered to one accepted agent on one machine. A mistaken script needs fewer. Each costs a signature and an audit log line. */
export const DENIAL_BURST = 512
export const DENIALS_PER_SECOND = 32

// ---- mesh ----
/** Maximum difference to another machine's clock. */
export const MAX_CLOCK_SKEW_MS = 300_000
/** Presences accepted from one machine in a minute. */
export const PRESENCES_PER_MINUTE = 12
/** Validity of a card that daemons pass on, which is fetched again after a day. Its owner signs a new one 12 hours before it expires. */
export const RECORD_TTL_MS = 24 * 60 * 60 * 1000
/** Maximum validity of a presence, three of the longest intervals between two. */
export const MAX_PRESENCE_SECS = 1_800
/** Addresses in one presence, a local and a public one for each family. The card has all. */
export const MAX_PRESENCE_ADDRESSES = 4
/** An encoded presence. It has some 80 bytes and its addresses. One of them may be a relay's. */
export const MAX_PRESENCE_BYTES = 512
/** Time to wait for a card. The asked peer may have to fetch it first. */
export const CARD_ANSWER_MS = 5_000
/** A request for a card has a version and a machine. */
export const MAX_CARD_ASK_BYTES = 64
/** Persistent connections to contacts' machines. Gossip needs some 20. The rest spares a small fleet the first handshake. */
export const MAX_STANDING_CONNECTIONS = 64
/** Agents that a configuration may name for further persistent connections. */
export const MAX_KEPT_AGENTS = 256
/** All connections, one for each host of a large fleet. The default of libp2p is 300. */
export const MAX_CONNECTIONS = 2_000
/** Connections of unlisted peers. The rest is left to named ones. */
export const MAX_UNLISTED_CONNECTIONS = 512
/** Concurrent dials. Others wait. Eight handshakes keep two cores busy, and four hundred made a requester unresponsive. */
export const MAX_PARALLEL_DIALS = 16
/** Background dials among these. The rest is left to dials for waiting requests. */
export const MAX_UNAWAITED_DIALS = 12
/** Time for one address of a machine, so that one without an answer leaves time for the others. */
export const ADDRESS_DIAL_MS = 4_000
/** Time for all addresses of a machine together. */
export const DIAL_MS = 12_000
/** Addresses of one peer that are tried, from all sources. */
export const MAX_DIAL_ADDRESSES = 16
/** Bytes that wait in one stream for its window. Senders wait for drain, so more than a few frames are a defect. */
export const MAX_STREAM_WRITE_BUFFER = 2 * 1024 * 1024
/** One frame of the muxer. Yamux sends all that waits in a stream (`MAX_STREAM_WRITE_BUFFER`) and the present write as one frame. */
export const MAX_MUXER_FRAME = MAX_STREAM_WRITE_BUFFER + 256 * 1024
/** Unsent bytes of one connection after which it is closed. Two frames of `MAX_MUXER_FRAME` fit. */
export const MAX_CONNECTION_BACKLOG = 2 * MAX_MUXER_FRAME
/** Default validity of a card. */
export const CARD_TTL_MS = 365 * 24 * 60 * 60 * 1000
