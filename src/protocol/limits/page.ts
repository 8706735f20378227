/** How long a link from `x0x ui` may be followed: as long as it takes to open it, and too short to be found in a history. */
export const PAGE_LINK_MS = 60_000
/** Random bytes of that link, and of both halves of a session: 128 bits cannot be guessed at any rate. */
export const PAGE_SECRET_BYTES = 16
/** Links that may wait to be followed; a new one makes the oldest void. */
export const MAX_PAGE_LINKS = 4
/** A page that nobody has touched for so long is signed out: whoever sits down there next is somebody else. */
export const PAGE_IDLE_MS = 30 * 60_000
/** No session lasts longer, however much it is used: half a day is a day's work. */
export const PAGE_SESSION_MS = 12 * 60 * 60_000
/** Sessions at once: the tabs of one person. The oldest gives way. */
export const MAX_PAGE_SESSIONS = 8
/** Streams of one session: a tab that is loaded again may have two for a moment. */
export const MAX_SESSION_STREAMS = 2
/** Connections that have signed in to nothing yet; of more the oldest is hung up. Enough that one who connects thousands of times a second leaves time for a request. */
export const MAX_PAGE_UNPROVEN = 256
/** A body holds a decision or a question about a policy: its command line at most. */
export const MAX_PAGE_BODY = 64 * 1024
/** Ways and headers of a request: ours are short, and a browser adds the cookies of every server of this host. */
export const MAX_PAGE_HEAD = 32 * 1024
/** How long a request may take to come whole. */
export const PAGE_REQUEST_MS = 10_000
/** What waits for a page that does not read; beyond it the page is disconnected and begins anew. */
export const MAX_PAGE_BEHIND = 4 * 1024 * 1024
/** Above this it is told no more of runs: as much as the events that a page is told when it comes may have. Questions have the rest. */
export const MAX_PAGE_EVENTS_BEHIND = 3 * 1024 * 1024
/** A line now and then, by which the page sees that we live. */
export const PAGE_BEAT_MS = 5_000
/** Without a line for so long the page takes the connection for dead. */
export const PAGE_SILENCE_MS = 15_000
/** Requests of a session: a person clicks, and the page asks for what runs every two seconds. */
export const PAGE_REQUESTS = { burst: 120, perSecond: 20 } as const
/** Requests of whoever has no session, but for what signing in needs; wrong codes among them. */
export const PAGE_UNLISTED = { burst: 60, perSecond: 5 } as const
/** Lines of our log about requests that were refused. */
export const PAGE_NOTES = { burst: 20, perSecond: 0.2 } as const
/** Events that a page is told of when it comes. */
export const MAX_PAGE_EVENTS = 200
/** Characters of them as JSON: less than what may wait for a page, which could else never begin. */
export const MAX_PAGE_EVENTS_JSON = 1024 * 1024
/** How long a run is followed after a page has asked for it: it asks again every two seconds for as long as somebody sees it. */
export const PAGE_FOLLOW_MS = 6_000
/** Lines of a journal that one answer has. */
export const MAX_PAGE_LINES = 500
/** Lines of a journal that are looked through for them. */
export const MAX_PAGE_SEARCHED = 5_000
/** Bytes of the end of a journal that they are looked for in: who names the file, a daemon, may name one of any size. */
export const MAX_PAGE_JOURNAL_BYTES = 32 * 1024 * 1024
