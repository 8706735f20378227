/**
 * Limits of size, time and count that the wire promises or several floors share, each with its reason; any other stands
 * beside its one user. Times are milliseconds unless the name says seconds; sizes are bytes.
 */

// ---- identity (FIPS 203, FIPS 204, RFC 8032) ----
/** ML-DSA-65 public key, FIPS 204 table 2. */
export const AGENT_PUBLIC_KEY_BYTES = 1952
/** ML-DSA-65 signature, FIPS 204 table 2. */
export const AGENT_SIGNATURE_BYTES = 3309
/** Statements that one signature is made for at most: those that come while one is being made, so few wait for another. */
export const MAX_BATCH = 128
/** … and the longest signature of one of them: its place in the batch, and seven hashes. */
export const MAX_BATCH_SIGNATURE_BYTES = AGENT_SIGNATURE_BYTES + 2 + 7 * 32
/** ML-KEM-768 encapsulation key, FIPS 203 table 3. */
export const KEM_PUBLIC_KEY_BYTES = 1184
/** ML-KEM-768 ciphertext, FIPS 203 table 3. */
export const KEM_CIPHERTEXT_BYTES = 1088
/** Ed25519 public key, which is the MachineId itself (RFC 8032). */
export const MACHINE_ID_BYTES = 32
/** Ed25519 signature (RFC 8032). */
export const MACHINE_SIGNATURE_BYTES = 64
/** Every nonce we mint. */
export const NONCE_BYTES = 32
/** ChaCha20-Poly1305 tag (RFC 8439). */
export const AEAD_TAG_BYTES = 16
/** The secret that a key is made from: ML-DSA-65 (FIPS 204, ξ) and Ed25519 (RFC 8032) alike; also a token of the API. */
export const SEED_BYTES = 32
/** A prefix of an id that a human may type. */
export const MIN_ID_PREFIX = 6

// ---- frames ----
/** Data bytes in one Stdout, Stderr or Stdin frame: with envelope and tag it still fits one Noise message (65,535). */
export const MAX_FRAME_DATA = 60 * 1024
/** One sealed frame on a stream: a Noise message holds 65,519 bytes of payload; yamux and the length prefix take theirs. */
export const MAX_SEALED_FRAME = 65_400
/** One frame of the link handshake; the largest (M2) is about 6.6 KiB. */
export const MAX_LINK_FRAME = 16 * 1024
/** One message on the executor's port: a sealed frame's worth of data plus the fields around it. */
export const MAX_PORT_MESSAGE = 4 * 1024 * 1024
/** One part of a snapshot: thousands of contacts take several, between which other messages pass. */
export const MAX_SNAPSHOT_PART = 1024 * 1024
/** What the network's half may leave unread on the port before the executor stops listening to it: two runs' windows. */
export const MAX_PORT_BACKLOG = 16 * 1024 * 1024
/** Calls of the network's half in work at once: a burst of 32-way fan-out many times over. */
export const MAX_PORT_CALLS = 1_024
/** Runs that the network's half may hold open at once; far above any sane `max_concurrent_total`. */
export const MAX_PORT_RUNS = 1_024
/** … of which one agent has at most this many, denials in work included, so that others are still answered. */
export const MAX_RUNS_PER_PEER = 256
/** Nesting of CBOR arrays we accept: our deepest message needs three. */
export const MAX_CBOR_DEPTH = 4
/** Items in one CBOR message, whatever their nesting: argv is the longest list. */
export const MAX_CBOR_ITEMS = 4096
/** Tokens of one argv. */
export const MAX_ARGV_TOKENS = 1024
/** All tokens of one argv together: a Request must fit one frame beside its signature. */
export const MAX_ARGV_BYTES = 32 * 1024
/** A path or a short text in a message. */
export const MAX_TEXT = 4096
/** A human's name for an agent. */
export const MAX_NAME = 64
/** What an ACL says of an entry, in bytes: some sentences. It stands in every journal line of a run, and in every rule of `MAX_RULES`. */
export const MAX_DESCRIPTION_BYTES = 512
/** Commands in one answer to "which commands may I run": more than a person or a program chooses from. */
export const MAX_RULES = 256
/** … and all of them together: they fit one frame beside a signature. What is beyond is counted. */
export const MAX_RULES_BYTES = 48 * 1024
/** … and their CBOR items: below MAX_CBOR_ITEMS. */
export const MAX_RULES_ITEMS = 3584
/** How long such an answer is awaited on one stream. */
export const RULES_ANSWER_MS = 5_000
/** A warning's message. */
export const MAX_WARNING_TEXT = 512
/** Payload of one generic direct message: fits one frame. */
export const MAX_DIRECT_PAYLOAD = 48 * 1024
/** Addresses in one card; more is either a mistake or an attack on dialling. */
export const MAX_CARD_ADDRESSES = 16
/** One multiaddr as text. */
export const MAX_ADDRESS_TEXT = 256
/** An encoded card: key, signature and addresses with room. */
export const MAX_CARD_BYTES = 12 * 1024

// ---- flow ----
/** Acknowledge at least this often while data flows. */
export const ACK_EVERY_BYTES = 256 * 1024
/** … and at least this often while any is unacknowledged. */
export const ACK_EVERY_MS = 50
/** Unacknowledged output of one run before its pipe is paused: 8 MiB fill 200 ms at 40 MB/s. */
export const MAX_UNACKED_PER_RUN = 8 * 1024 * 1024
/** The same for a run that nobody has acknowledged yet: it grows by what is acknowledged. Four times the muxer's first window. */
export const FIRST_UNACKED_PER_RUN = 1024 * 1024
/** Unacknowledged output of all runs together before every pipe is paused. */
export const MAX_UNACKED_TOTAL = 64 * 1024 * 1024
/** … though a run with less than this goes on: readers that do not read must not stop those that do. */
export const MIN_UNACKED_PER_RUN = 512 * 1024
/** What a frame counts towards the limits above beside its data, so that a flood of tiny frames is bounded too. */
export const FRAME_COST = 256
/** Stdin that a daemon keeps in memory while it waits for the end of it, to hash and sign. */
export const MAX_STDIN_SPOOL = 64 * 1024 * 1024
/** A Request signs stdin in pieces of this size, and none is fed before its hash fits: what a run holds back is small, and most stdin is one piece. */
export const STDIN_PIECE_BYTES = 1024 * 1024
/** The hashes of so many pieces fit a Request beside its argv, 34 bytes each … */
export const MAX_STDIN_PIECES = 512
/** … so that no stdin of a run on the mesh is longer than this. */
export const MAX_STDIN_BYTES = MAX_STDIN_PIECES * STDIN_PIECE_BYTES
/** Such stdin sent ahead of the responder's acknowledgement: one piece is held back or fed while the next is on its way. */
export const MAX_PIECES_UNACKED = 2 * STDIN_PIECE_BYTES
/** … and what all runs together may be sent ahead: a Request beyond it is denied as one beyond the runs at once. */
export const MAX_STDIN_HELD = 128 * 1024 * 1024
/** Bytes of a REST answer that aggregates output; above this the caller must stream. */
export const MAX_AGGREGATED_OUTPUT = 64 * 1024 * 1024

// ---- leases and runs ----
/** A requester renews at least every two seconds; ours twice as often, so that it notices a silence with time left to resume. */
export const LEASE_RENEW_MS = 1_000
/** A requester that is silent this long is gone; the child gets SIGTERM within 5 s of its disappearance. */
export const LEASE_EXPIRES_MS = 4_000
/** One attempt to reach the machine of a run again whose connection is lost: six round trips of 300 ms. */
export const RESUME_ATTEMPT_MS = 2_000
/** From SIGTERM to SIGKILL. */
export const KILL_GRACE_MS = 5_000
/** After exit, how long pipes held open by a descendant are still read. */
export const DRAIN_MS = 250
/** How long a shutdown may take to end every child. */
export const SHUTDOWN_MS = 3_000
/** When a shutdown turns to SIGKILL: early enough for the journal and the Exits behind it. */
export const SHUTDOWN_KILL_MS = 2_000
/** How long an executor that stops waits for the network's half to take what it was sent. */
export const PORT_FINISH_MS = 500
/** SIGTERM comes this long before the duration cap; half the cap when the cap is below twice this. */
export const DURATION_TERM_LEAD_MS = 5_000
/** How long the requester waits for Exit beyond the run's own timeout before it calls the run incomplete. */
export const EXIT_WAIT_SLACK_MS = 15_000
/** Warnings of one run that a requester accepts: every kind once is 18. */
export const MAX_WARNINGS_PER_RUN = 64
/** Output that may arrive beyond the window: 1 MiB that was on its way when the pipe was paused, and MAX_LEFT_IN_PIPES. */
export const UNACKED_SLACK = 5 * 1024 * 1024
/** What a process can end with (POSIX `wait`): anything else would be cut to its last byte where it is handed on, 256 to success. */
export const MAX_EXIT_STATUS = 255
export const MAX_SIGNAL = 127
/** Ended runs whose request id is remembered, on either side, so that it cannot be used again. */
export const MAX_RECENT_RUNS = 4096

// ---- links ----
/**
 * The one version of a link. Both sides must list it. A peer with another version gets the error `upgrade`. Raise it with every change of
 * the handshake or of a frame that travels on a link.
 */
export const LINK_VERSION = 9
/** Keys that an agent had one after another, as far back as a contact that missed them follows: each step costs two signatures, and one frame holds them all. */
export const MAX_SUCCESSIONS = 4
/** How long a named agent whose machine is another agent now is looked at for having followed: its executor verifies two signatures and writes two files. */
export const FOLLOW_MS = 2_000
/** Pings that one accepted agent is answered: a burst and a rate above what people type. */
export const PING_BURST = 20
export const PINGS_PER_SECOND = 10
/** How long a pong is waited for. */
export const PING_ANSWER_MS = 5_000
/** How long a link handshake waits for a message of the peer; what we take ourselves does not count. */
export const LINK_HANDSHAKE_MS = 5_000
/** A link is renewed after this. */
export const LINK_RENEW_MS = 24 * 60 * 60 * 1000
/** Stream nonces outstanding for one (agent, machine). */
export const MAX_NONCES_PER_PEER = 128
/** How long a burst is remembered. */
export const PEAK_MS = 30_000
/** Streams of our protocol that one connection may open towards us. */
export const MAX_STREAMS_PER_CONNECTION = 256
/** Streams of one connection that the peer has opened and not used yet. */
export const MAX_WAITING_STREAMS = 96
/** Bytes that may arrive together with M3, before the stream is held: one read of the socket. */
export const MAX_EARLY_BYTES = MAX_LINK_FRAME + 2 * MAX_SEALED_FRAME
/** Chunks of those bytes that are kept apart, since each costs far more memory than its bytes. */
export const MAX_EARLY_PIECES = 64
/** A link's id on the wire: the first bytes of the transcript hash. */
export const LINK_ID_BYTES = 8
/** Revocations that one side may send over one link, in all its lists together. */
export const MAX_REVOCATIONS_PER_LINK = 64
/** Requests answered to all peers together that are not accepted, since each may make as many links as it likes. */
export const ALL_UNLISTED_REQUEST_BURST = 128
export const ALL_UNLISTED_REQUESTS_PER_SECOND = 8

/** Denials answered to one accepted agent on one machine: more than any mistaken script needs to be told; each costs a signature and a line of the journal. */
export const DENIAL_BURST = 512
export const DENIALS_PER_SECOND = 32

// ---- mesh ----
/** How far another machine's clock may run ahead or behind. */
export const MAX_CLOCK_SKEW_MS = 300_000
/** Presences accepted from one machine per minute. */
export const PRESENCES_PER_MINUTE = 12
/** A card that agents hand to one another holds this long, so that one that is a day old is asked for again; its owner signs another at half of it. */
export const RECORD_TTL_MS = 24 * 60 * 60 * 1000
/** A presence is believed this long at most: three of the longest pauses between two. */
export const MAX_PRESENCE_SECS = 1_800
/** Addresses in one presence: of each family one at home and one outside; the card has all. */
export const MAX_PRESENCE_ADDRESSES = 4
/** An encoded presence: some 80 bytes and its addresses, of which one may be that of a relay. */
export const MAX_PRESENCE_BYTES = 512
/** How long an answer with a card is awaited: one who is asked for another's may have to ask for it first. */
export const CARD_ANSWER_MS = 5_000
/** A question for a card: a version and a machine. */
export const MAX_CARD_ASK_BYTES = 64
/** Contacts' machines to which a connection stands although nothing runs there. Some 20 are enough for gossip to reach everybody; the rest spares a small fleet the first handshake. */
export const MAX_STANDING_CONNECTIONS = 64
/** Agents that a daemon may be told to keep a connection to, beside those. */
export const MAX_KEPT_AGENTS = 256
/** Connections in all: one per host of a large fleet; libp2p's default is 300. */
export const MAX_CONNECTIONS = 2_000
/** Connections of machines that neither the contacts nor the ACL name: they leave the rest to those that are named. */
export const MAX_UNLISTED_CONNECTIONS = 512
/** Machines dialled at once, the others wait: eight handshakes keep two cores busy, four hundred made a requester unresponsive. */
export const MAX_PARALLEL_DIALS = 16
/** Of these, dials for which nobody waits: the others are left to who does. */
export const MAX_UNAWAITED_DIALS = 12
/** How long one address of a machine may take, so that one that never answers leaves time for the others. */
export const ADDRESS_DIAL_MS = 4_000
/** How long all addresses of a machine together may take. */
export const DIAL_MS = 12_000
/** Addresses of one peer that are tried, wherever they were learnt. */
export const MAX_DIAL_ADDRESSES = 16
/** Bytes that may wait in one stream for its window. Our senders wait for drain after each refused write, so more than a few frames are a defect. */
export const MAX_STREAM_WRITE_BUFFER = 2 * 1024 * 1024
/** One frame of the muxer: yamux sends in one frame whatever waits in a stream (`MAX_STREAM_WRITE_BUFFER`) and the write at hand. */
export const MAX_MUXER_FRAME = MAX_STREAM_WRITE_BUFFER + 256 * 1024
/** Bytes written to one connection and not taken by its socket before the connection is given up: two frames of `MAX_MUXER_FRAME`. */
export const MAX_CONNECTION_BACKLOG = 2 * MAX_MUXER_FRAME
/** A card is good for this long unless its owner says otherwise. */
export const CARD_TTL_MS = 365 * 24 * 60 * 60 * 1000
