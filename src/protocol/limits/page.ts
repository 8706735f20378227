/** Validity of a link from `x0x ui`. It leaves time to open the link, and is too short for a link in a browser history. */
export const PAGE_LINK_MS = 60_000
/** Random bytes of that link and of both parts of a session. 128 bits cannot be guessed at any rate. */
export const PAGE_SECRET_BYTES = 16
/** Links not yet opened. A new one invalidates the oldest. */
export const MAX_PAGE_LINKS = 4
/** An unused page is signed out after this time, because another person may use the computer next. */
export const PAGE_IDLE_MS = 30 * 60_000
/** Maximum duration of a session, used or not. A day's work fits. */
export const PAGE_SESSION_MS = 12 * 60 * 60_000
/** Concurrent sessions, which are the tabs of one person. The oldest is ended. */
export const MAX_PAGE_SESSIONS = 8
/** Streams of one session. A reloaded tab may have two for a moment. */
export const MAX_SESSION_STREAMS = 2
/** Connections without a session. The oldest is closed. Leaves time for a request at thousands of connections a second. */
export const MAX_PAGE_UNPROVEN = 256
/** A body with a decision or a policy query. A command line is its largest part. */
export const MAX_PAGE_BODY = 64 * 1024
/** Request line and headers. A browser adds the cookies of each server on this host. */
export const MAX_PAGE_HEAD = 32 * 1024
/** Time for a request to arrive completely. */
export const PAGE_REQUEST_MS = 10_000
/** Unread bytes after which a page is disconnected and has to start again. */
export const MAX_PAGE_BEHIND = 4 * 1024 * 1024
/** Unread bytes after which a page receives no run events. Its initial events have as many. The rest is for approval requests. */
export const MAX_PAGE_EVENTS_BEHIND = 3 * 1024 * 1024
/** Interval of keep-alive lines, by which the page notices a dead server. */
export const PAGE_BEAT_MS = 5_000
/** Silence after which the page regards the connection as dead. */
export const PAGE_SILENCE_MS = 15_000
/** Requests of a session. A person clicks, and the page polls running commands every two seconds. */
export const PAGE_REQUESTS = { burst: 120, perSecond: 20 } as const
/** Requests without a session, except those for signing in. Wrong codes count. */
export const PAGE_UNLISTED = { burst: 60, perSecond: 5 } as const
/** Log lines about refused requests. */
export const PAGE_NOTES = { burst: 20, perSecond: 0.2 } as const
/** Events that a page receives when it opens. */
export const MAX_PAGE_EVENTS = 200
/** Their characters as JSON, below the unread limit, so that a page can always start. */
export const MAX_PAGE_EVENTS_JSON = 1024 * 1024
/** How long output is followed after a page's request. The page repeats it every two seconds while it is visible. */
export const PAGE_FOLLOW_MS = 6_000
/** Rows in one reply. A list has pages of as many, so that neither a browser nor a reply grows with the mesh. */
export const MAX_PAGE_ROWS = 50
/** Contacts in one change of many. The dialog lists each, and the page proves and records each. */
export const MAX_PAGE_CONTACTS = 200
/** Hosts of a fan-out in one reply. Each takes little room on the page. */
export const MAX_PAGE_CELLS = 500
/** Text of a filter. */
export const MAX_PAGE_FILTER = 256
/** Log lines of one run in one reply. Warnings repeat, so a run may have more. */
export const MAX_PAGE_RUN_LINES = 24
/** Runs that the server of the page remembers. One requester cannot push out those of another. */
export const MAX_PAGE_RUNS = 10_000
/** Characters of a command that it remembers for each run. The logs have the whole. */
export const MAX_PAGE_COMMAND = 4_096
/** Log lines read for the runs when the page is first opened. A run has three or four. */
export const MAX_PAGE_RUN_HISTORY = 40_000
/** Ends of output that it remembers. Each has at most MAX_EVENT_TAIL characters. */
export const MAX_PAGE_TAILS = 100
/** Fan-outs in one reply. */
export const MAX_PAGE_FANOUTS = 100
/** Age of answers of the daemon that all pages share, so that several tabs cost as much as one. */
export const PAGE_SHARED_MS = 1_000
/** Time for one answer of the daemon. */
export const PAGE_DAEMON_MS = 10_000
/** Peers whose version is asked at once. Only linked ones are asked, so that no connection is made for it. */
export const PAGE_PINGS_AT_ONCE = 4
/** Age at which the version of a peer is asked again. */
export const PAGE_VERSION_MS = 10 * 60_000
/** Peers whose version is remembered, and asked for a list that is sorted or filtered by version. */
export const MAX_PAGE_VERSIONS = 4_096
/** Log lines searched for them. */
export const MAX_PAGE_SEARCHED = 5_000
/** Bytes searched at the end of a log, because the daemon that names the file may name one of any size. */
export const MAX_PAGE_JOURNAL_BYTES = 32 * 1024 * 1024
