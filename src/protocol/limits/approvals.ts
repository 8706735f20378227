/**
 * Limits of the desk, which asks this user's humans what may run (docs/approvals.md). Each with its reason; times are
 * milliseconds, sizes are bytes.
 */

// ---- the socket ----
/** One line: a command of the largest size that a journal keeps, escaped in its body, and what stands around it. */
export const MAX_DESK_LINE = 256 * 1024
/** A body is an object with lists of texts and of small objects in it. */
export const DESK_SHAPE = { depth: 8, values: 65_536 } as const
/** How far the sender's time may be from ours: both stand on one machine, and a human who suspends it asks again. */
export const DESK_FRESH_MS = 10_000
/** From the connect to the proof of a role. */
export const DESK_OPEN_MS = 5_000
/** From a human's request to its result: what a desk does for one is a line of a journal and a file. */
export const DESK_ANSWER_MS = 10_000
/** Connections at once: each engine and each window of a human has one. Engines and humans have places of their own. */
export const MAX_DESK_CONNECTIONS = { unproven: 16, engine: 64, human: 16 } as const
/** Lines of one connection: an engine that starts many short runs at once, and one that goes on for ever. */
export const DESK_LINES = { burst: 512, perSecond: 64 } as const
/** Of these, the news of runs that an engine tells: what is more is lost, and leaves room for questions. */
export const DESK_EVENTS = { burst: 256, perSecond: 32 } as const
/** Of those, what runs have written so far: how they end is never lost for it. */
export const DESK_OUTPUTS = { burst: 8, perSecond: 8 } as const
/** Of these, what an engine asks, which is less than what events leave: above it lines of its callers wait for their turns. */
export const DESK_REQUESTS = { burst: 192, perSecond: 30, patienceMs: 2_000, waiting: 64, callers: 1_024 } as const
/** Nonces of one connection that are remembered: more than the lines that come while one is fresh, twice over. */
export const MAX_DESK_NONCES = 2_048
/** What a reader may leave unread before it is cut off: a list of all that waits, and some news. */
export const MAX_DESK_UNREAD = 4 * 1024 * 1024
/** Above this it is told no more of runs, so that an agent that starts many, or writes much, takes no window away. */
export const MAX_DESK_EVENTS_UNREAD = MAX_DESK_UNREAD / 4
/** One answer of the desk to a human: lists are cut so that they fit. */
export const MAX_DESK_REPLY = 2 * 1024 * 1024
/** Requests of one window whose results are on their way. */
export const MAX_APPROVAL_CLIENT_REQUESTS = 32
/** Who a client says it is: a label in the journal and in a list. */
export const MAX_DESK_NAME = 64

/** How soon a daemon looks again whether it can host the desk. */
export const DESK_RETRY_MS = 2_000

// ---- runs that are followed ----
/** What a run is called: its session or owner, and its id. */
export const MAX_RUN_NAME = 512
/** Runs that one window follows: as many as a person may have before him. */
export const MAX_FOLLOWED_RUNS = 32
/** Runs of one engine that go on and are known to the desk; of more the oldest cannot be followed. */
export const MAX_KNOWN_RUNS = 256
/** Runs that an engine tells of as it connects, the newest: less than what it may tell at once, so that the ends of runs are not lost for it. */
export const MAX_TOLD_RUNNING = 64
/** How soon engines are told what is followed: windows that change their minds all the time cost them ten lines a second. */
export const FOLLOW_TELL_MS = 100

// ---- questions ----
/**
 * Questions that wait of one caller and in all, and their size as JSON: all fit into one answer. A caller is an agent of the mesh, a name that
 * `x0x mcp --whoami` was given, or one session of another local program.
 */
export const MAX_QUESTIONS_OF_ASKER = 16
export const MAX_WAITING_JSON_OF_ASKER = 96 * 1024
export const MAX_QUESTIONS = 256
export const MAX_WAITING_JSON = 512 * 1024
/** Of those, of sessions: a local program opens as many as it likes, and leaves half to agents that have a name. */
export const MAX_CLAIMED_QUESTIONS = MAX_QUESTIONS / 2
export const MAX_CLAIMED_JSON = MAX_WAITING_JSON / 2
/** Questions of one engine that are being answered, those which the store decides among them. */
export const MAX_QUESTIONS_OF_ENGINE = 64
/** How long a human has, and has at most: no caller waits longer than half an hour. */
export const ASK_TIMEOUT_MS = 120_000
export const MAX_ASK_TIMEOUT_MS = 30 * 60_000
/** How long the desk waits for a human's window to come back, as one that is loaded again: the fallback is to be decided within two seconds. */
export const UI_GRACE_MS = 1_000
/** Questions of one asker that are taken: what he asks beyond that is denied at once and counted. */
export const QUESTION_RATE = { burst: 64, perSecond: 2 } as const
/** Askers whose floods the page remembers. */
export const MAX_ASKERS = 1_024
/** Askers whose floods are lines of their own in the list that humans get, beside what waits; the rest is one. Their names go no further. */
export const MAX_FLOODS = 64
export const MAX_FLOOD_NAME = 128
/** How soon what was counted of floods stands in the journal. */
export const FLOOD_SUMMARY_MS = 60_000
/** One text of a question, such as a reason or a path. */
export const MAX_QUESTION_TEXT = 8 * 1024
/** Characters of why somebody is asked: it may name every program of a command. */
export const MAX_WHY_ASKED = 2_048
/** The whole question as JSON: its line of the socket has room for it. */
export const MAX_QUESTION_JSON = 192 * 1024
/** What a human is shown of the texts of one question, escapes and all: 400 lines of a terminal, which somebody who decides can read. */
export const MAX_SHOWN_QUESTION = 32 * 1024
/** Stdin that is text is shown beside that, so much of it as a file that somebody reads. */
export const MAX_SHOWN_STDIN = 32 * 1024
/** The same as JSON, so that its line of the socket has room for it, whatever its characters are. */
export const MAX_SHOWN_STDIN_JSON = 2 * MAX_SHOWN_STDIN + 2
/** Questions that were settled and are remembered, so that who decides too late is told who won. */
export const MAX_SETTLED = 1_024

// ---- the store ----
/** A store that is larger is not read. */
export const MAX_STORE_BYTES = 4 * 1024 * 1024
export const MAX_STORE_AGENTS = 1_024
export const MAX_ALLOWLIST = 1_024
export const MAX_PATTERN = 4_096
export const MAX_GRANTS = 4_096
/** How long "always" lasts where nothing else is said, and at most. */
export const GRANT_MS = 30 * 86_400_000
export const MAX_GRANT_MS = 366 * 86_400_000
/** The same for an opaque command, which may run other things each time: a working day, and a day. */
export const OPAQUE_GRANT_MS = 8 * 3_600_000
export const MAX_OPAQUE_GRANT_MS = 24 * 3_600_000
/** How long a grant lasts where nothing else is said, and at most. `opaque`: as the question has it. */
export const grantBounds = (opaque: string | null): { readonly usual: number; readonly most: number } =>
  opaque === null ? { usual: GRANT_MS, most: MAX_GRANT_MS } : { usual: OPAQUE_GRANT_MS, most: MAX_OPAQUE_GRANT_MS }
export const MAX_GRANT_USES = 1_000_000
/** What was last used is written so often at most: it decides nothing. */
export const LAST_USED_WRITE_MS = 2_000
/** `lastUsedCommand`: for a human to recognise. */
export const MAX_LAST_USED_COMMAND = 1_024

// ---- modes and history ----
/** Sessions whose overrides are remembered: one more is refused, since none that narrows may be forgotten. */
export const MAX_OVERRIDES = 1_024
/** The name of a session. */
export const MAX_SESSION_NAME = 256
/** Lines of the journal that one answer has at most. */
export const MAX_HISTORY = 1_000
/** Of what the desk last recorded, kept to answer `history`. */
export const HISTORY_BYTES = 1024 * 1024
/** Of the journal, read at the start of a desk for questions that an earlier one left open: all that can wait, and nine others a second for as long as one may. */
export const RECOVERY_BYTES = 16 * 1024 * 1024

/** Limits of runs that wait until somebody allows them, each with its reason. Times are milliseconds. */

/** The longest that a question is asked: a human who has gone to lunch is none that one waits for. */
export const MAX_APPROVAL_WAIT_MS = 30 * 60 * 1000
/** Agents that one entry of an ACL may name as approvers. Each is asked on a stream of its own. */
export const MAX_MESH_APPROVERS = 16
/** A question to another agent, as JSON: it fits one frame beside its signature. What is longer nobody is asked about. */
export const MAX_APPROVAL_QUESTION = 48 * 1024
/** Machines of one approver that are asked at once: whoever sits at one of them answers for the agent. */
export const MAX_APPROVER_MACHINES = 4
/** Between two tries to reach an approver: the first, and the longest that it grows to. */
export const APPROVER_RETRY_MS = 2_000
export const MAX_APPROVER_RETRY_MS = 30_000
/** Questions to approvers under way at once: every waiting run may ask some. */
export const MAX_APPROVER_ASKS = 1_024
/** Waiting runs of one agent, whatever its machines: an approver reads no more questions of one requester. */
export const MAX_WAITING_OF_AGENT = 16
/** … and of all together: what a desk keeps. */
export const MAX_WAITING_RUNS = 256
/** Stdin that waiting runs may be sent ahead, all together: they hold no slot, so the memory of `MAX_STDIN_HELD` is not theirs. */
export const MAX_WAITING_STDIN = 32 * 1024 * 1024
/** … of those of one agent, whatever its machines: the rest is left to others. Four with as much as may be on its way. */
export const MAX_WAITING_STDIN_OF_AGENT = MAX_WAITING_STDIN / 4
/** Questions that one agent may bring about at once, and from then on: each wants a human's eye and leaves lines in two journals. */
export const QUESTION_BURST = 32
export const QUESTIONS_PER_SECOND = 1
/** Waiting frames of one run that a requester accepts on one stream: one for each approval, and the first. */
export const MAX_WAITING_FRAMES = 2 * MAX_MESH_APPROVERS
