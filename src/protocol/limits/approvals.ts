/** Limits of the approval service (docs/approvals.md), each with its reason. Times are milliseconds, sizes are bytes. */

// ---- the socket ----
/** One line of the socket. It holds the largest command of an audit log line, escaped in its body, and the fields around it. */
export const MAX_DESK_LINE = 256 * 1024
/** Shape of a body, which is an object with lists of texts and of small objects. */
export const DESK_SHAPE = { depth: 8, values: 65_536 } as const
/** Maximum difference to the sender's clock. Both run on one machine. An approver who suspends it repeats the request. */
export const DESK_FRESH_MS = 10_000
/** Time from connecting to proving a role. */
export const DESK_OPEN_MS = 5_000
/** Time for a reply to an approval client. The service may write one journal line and one file first. */
export const DESK_ANSWER_MS = 10_000
/** Concurrent connections. Each executor and each approval client needs one. They are counted separately. */
export const MAX_DESK_CONNECTIONS = { unproven: 16, engine: 64, human: 16 } as const
/** Lines of one connection. An executor may start many short runs at once, or continue forever. */
export const DESK_LINES = { burst: 512, perSecond: 64 } as const
/** Run events of an executor among these lines. Further events are dropped, which leaves room for approval requests. */
export const DESK_EVENTS = { burst: 256, perSecond: 32 } as const
/** Output events among these, so that they never displace end events. */
export const DESK_OUTPUTS = { burst: 8, perSecond: 8 } as const
/** Requests of an executor among these lines, fewer than events leave free. Further requests wait. */
export const DESK_REQUESTS = { burst: 192, perSecond: 30, patienceMs: 2_000, waiting: 64, callers: 1_024 } as const
/** Remembered nonces of one connection. More lines than this cannot arrive while one is remembered. */
export const MAX_DESK_NONCES = 2_048
/** Unread bytes after which a client is disconnected. A list of all pending requests and some events fit. */
export const MAX_DESK_UNREAD = 4 * 1024 * 1024
/** Unread bytes after which a client receives no run events, so that much output of one agent disconnects no approval client. */
export const MAX_DESK_EVENTS_UNREAD = MAX_DESK_UNREAD / 4
/** One reply to an approval client. Lists are cut to fit. */
export const MAX_DESK_REPLY = 2 * 1024 * 1024
export const MAX_APPROVAL_CLIENT_REQUESTS = 32
/** Name that a client gives itself. It is a label in the audit log and in a list. */
export const MAX_DESK_NAME = 64

/** Interval at which a daemon tries again to host the approval service. */
export const DESK_RETRY_MS = 2_000

// ---- followed runs ----
/** Name of a run, made of its session or owner and its ID. */
export const MAX_RUN_NAME = 512
/** Runs that one approval client follows. A person cannot watch more. */
export const MAX_FOLLOWED_RUNS = 32
/** Live runs of one executor that the approval service knows. If there are more, the oldest cannot be followed. */
export const MAX_KNOWN_RUNS = 256
/** Newest runs that an executor reports when it connects. The event rate allows more, so no end event is lost. */
export const MAX_TOLD_RUNNING = 64
/** Delay of changes to the followed runs. Approval clients that change them all the time cost an executor ten lines a second. */
export const FOLLOW_TELL_MS = 100

// ---- approval requests ----
/**
 * Pending approval requests of one requester and in all, and their size as JSON. All fit one reply. A requester is a mesh agent, a name
 * given to `x0x mcp --whoami`, or one session of another local program.
 */
export const MAX_QUESTIONS_OF_ASKER = 16
export const MAX_WAITING_JSON_OF_ASKER = 96 * 1024
export const MAX_QUESTIONS = 256
export const MAX_WAITING_JSON = 512 * 1024
/** Requests of sessions among these. A local program can open any number of sessions, so the rest is left to named agents. */
export const MAX_CLAIMED_QUESTIONS = MAX_QUESTIONS / 2
export const MAX_CLAIMED_JSON = MAX_WAITING_JSON / 2
/** Concurrent approval requests of one executor, including those that the store decides. */
export const MAX_QUESTIONS_OF_ENGINE = 64
/** Default and maximum time for a decision. */
export const ASK_TIMEOUT_MS = 120_000
export const MAX_ASK_TIMEOUT_MS = 30 * 60_000
/** Time for an approval client to reconnect, as after a page reload. The fallback must be decided within two seconds. */
export const UI_GRACE_MS = 1_000
/** Approval requests accepted from one requester. Further ones are denied at once and counted. */
export const QUESTION_RATE = { burst: 64, perSecond: 2 } as const
/** Requesters whose rate-limited requests are remembered. */
export const MAX_ASKERS = 1_024
/** Requesters that are listed separately with their rate-limited requests. All others share one line. */
export const MAX_FLOODS = 64
export const MAX_FLOOD_NAME = 128
/** Interval at which counts of rate-limited requests are written to the log. */
export const FLOOD_SUMMARY_MS = 60_000
/** One text of an approval request, such as a reason or a path. */
export const MAX_QUESTION_TEXT = 8 * 1024
/** Characters of the reason for an approval request, which may name each program of a command. */
export const MAX_WHY_ASKED = 2_048
/** An approval request as JSON, so that it fits one line of the socket. */
export const MAX_QUESTION_JSON = 192 * 1024
/** Texts of one approval request as displayed, with escapes. These are 400 lines of a terminal, which a person can read before deciding. */
export const MAX_SHOWN_QUESTION = 32 * 1024
/** Text of stdin displayed in addition. A person does not read a longer file. */
export const MAX_SHOWN_STDIN = 32 * 1024
/** The same as JSON, so that any characters fit one line of the socket. */
export const MAX_SHOWN_STDIN_JSON = 2 * MAX_SHOWN_STDIN + 2
/** Decided requests that are remembered, so that a late approver learns who decided. */
export const MAX_SETTLED = 1_024

// ---- the store ----
/** A larger store is not read. */
export const MAX_STORE_BYTES = 4 * 1024 * 1024
export const MAX_STORE_AGENTS = 1_024
export const MAX_ALLOWLIST = 1_024
export const MAX_PATTERN = 4_096
export const MAX_GRANTS = 4_096
/** Default and maximum duration of an "always" grant. */
export const GRANT_MS = 30 * 86_400_000
export const MAX_GRANT_MS = 366 * 86_400_000
/** The same for an opaque command, which may run something else each time. The default is a working day. */
export const OPAQUE_GRANT_MS = 8 * 3_600_000
export const MAX_OPAQUE_GRANT_MS = 24 * 3_600_000
/** Default and maximum duration of a grant. `opaque` is the field of the approval request. */
export const grantBounds = (opaque: string | null): { readonly usual: number; readonly most: number } =>
  opaque === null ? { usual: GRANT_MS, most: MAX_GRANT_MS } : { usual: OPAQUE_GRANT_MS, most: MAX_OPAQUE_GRANT_MS }
export const MAX_GRANT_USES = 1_000_000
/** Minimum interval between writes of the last use, which has no effect on decisions. */
export const LAST_USED_WRITE_MS = 2_000
/** `lastUsedCommand`, which lets a person recognise the command. */
export const MAX_LAST_USED_COMMAND = 1_024

// ---- modes and history ----
/** Sessions whose overrides are remembered. A further one is refused, because an override that narrows must not be evicted. */
export const MAX_OVERRIDES = 1_024
export const MAX_SESSION_NAME = 256
/** Journal lines in one reply. */
export const MAX_HISTORY = 1_000
/** Recent journal lines kept in memory to answer `history`. */
export const HISTORY_BYTES = 1024 * 1024
/** Bytes read at start to find requests left open. They hold all that can be pending, and nine others a second meanwhile. */
export const RECOVERY_BYTES = 16 * 1024 * 1024

/** Longest time that a mesh run waits for a decision. */
export const MAX_APPROVAL_WAIT_MS = 30 * 60 * 1000
/** Approvers of one ACL entry. Each needs a stream. */
export const MAX_MESH_APPROVERS = 16
/** An approval request to another agent as JSON. It fits one frame with its signature. A longer one is not sent. */
export const MAX_APPROVAL_QUESTION = 48 * 1024
/** Machines of one approver that are asked at once. Any of them can answer for the agent. */
export const MAX_APPROVER_MACHINES = 4
/** First and longest delay between two attempts to reach an approver. */
export const APPROVER_RETRY_MS = 2_000
export const MAX_APPROVER_RETRY_MS = 30_000
/** Concurrent requests to approvers. Each waiting run may send several. */
export const MAX_APPROVER_ASKS = 1_024
/** Waiting runs of one agent on all its machines. An approver reads no more requests of one requester. */
export const MAX_WAITING_OF_AGENT = 16
/** Waiting runs of all agents. The approval service keeps no more. */
export const MAX_WAITING_RUNS = 256
/** Stdin that waiting runs may receive ahead, all together. They hold no slot, so `MAX_STDIN_HELD` does not apply. */
export const MAX_WAITING_STDIN = 32 * 1024 * 1024
/** … of those of one agent on all its machines, which leaves the rest to others. Four runs can have the maximum in flight. */
export const MAX_WAITING_STDIN_OF_AGENT = MAX_WAITING_STDIN / 4
/** Burst, and rate per second, of approval requests that one agent may cause. Each needs a person's attention and two log lines. */
export const QUESTION_BURST = 32
export const QUESTIONS_PER_SECOND = 1
/** Waiting frames of one run that a requester accepts on one stream. One is the first, and each approval sends another. */
export const MAX_WAITING_FRAMES = 2 * MAX_MESH_APPROVERS
/** How long an approval to read a file holds for the same version of it, so that a download over a slow path needs one approval. */
export const APPROVED_READ_MS = 60 * 60 * 1000
/** Such approvals that a target remembers. The oldest of the agent with most are forgotten first. */
export const MAX_APPROVED_READS = 1_024
