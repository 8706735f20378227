import { any, ENCODING, flag, list, may, oneOf, orNull, record, text, whole, type Sent } from './rexd-fields.ts'
import type { Method } from './rexd-methods.ts'
import type { CapabilityName, LimitName } from './rexd-names.ts'

/** The version of the protocol that both ends speak. */
export const PROTOCOL = 'rexd/1'

const SESSION = { session_id: text() }
const PROCESS = { ...SESSION, process_id: text() }

/** What a session was granted. */
const GRANT = {
  capabilities: list(text<CapabilityName>()),
  /** The limits in force. A server of others may lack some. */
  limits: any<Readonly<Partial<Record<LimitName, number>>>>(),
  /** A relative path begins at the first of them. None where it is for an agent of the mesh. */
  workspace_roots: list(text()),
  /** The agent of the mesh that its commands run on; absent: they run on the server. */
  target: may(text()),
}

const STATUS = {
  status: oneOf(['running', 'exited', 'killed', 'timed_out']),
  /** Null while it runs, and when a signal ended it. */
  exit_code: orNull(whole()),
  /** The signal that ended it, as `SIGTERM`. */
  signal: orNull(text()),
  /** What it wrote, whether it was passed on or not. */
  bytes_stdout: whole(),
  bytes_stderr: whole(),
  /** What it wrote waits for its reader, and so does it; its end is told behind that. */
  held: flag(),
}

const SUMMARY = {
  process_id: text(),
  argv: list(text()),
  /** ISO 8601. */
  started_at: text(),
  /** Null: on an agent of the mesh, which says nothing of that. */
  cwd: orNull(text()),
  ...STATUS,
}

const INFO = {
  ...SESSION,
  client_name: text(),
  /** ISO 8601. */
  opened_at: text(),
  /** Where a command runs that names no directory; null: on an agent of the mesh, which says nothing of that. */
  cwd: orNull(text()),
  ...GRANT,
  /** Those that run, and those that ended not long ago. */
  processes: list(record(SUMMARY)),
  /** Those that have outlived their sessions, of whomever; only where `exec.detach` is granted. */
  detached: may(list(record(SUMMARY))),
}

const SERVER = { protocol: text(), server_version: text() }

const STARTED = {
  process_id: text(),
  /** ISO 8601. */
  started_at: text(),
  /** What counts, where more was asked for. */
  timeout_ms: whole(),
  max_output_bytes: whole(),
}

/** Bytes from the beginning of `data` that there was room for; the rest is to be sent again. */
const TAKEN = { accepted_bytes: whole() }
const DONE = { ok: flag() }

const FILE_TYPE = oneOf(['file', 'dir', 'symlink', 'other'])
/** ISO 8601 with nine digits behind the point, so that equal texts are equal times; and in whole milliseconds since 1970. */
const CHANGED = { mtime: text(), mtime_ms: whole() }
/** Null where the system would not tell, and where nothing is there. */
const MAYBE_CHANGED = { size: orNull(whole()), mtime: orNull(text()), mtime_ms: orNull(whole()) }

const ENTRY = {
  name: text(),
  /** Whole. */
  path: text(),
  type: FILE_TYPE,
  ...MAYBE_CHANGED,
}

// ---- events: messages of the server that answer nothing ----

/** 1, 2, 3, … within a session whose events are kept; only there. */
const EVENT = { ...PROCESS, cursor: may(whole()) }
/** `seq`: 1, 2, 3, … for each stream of each process. */
const OUTPUT = { ...EVENT, seq: whole(), data: text(), encoding: ENCODING }
/** The last event of a process that has run. */
const EXIT = {
  ...EVENT,
  /** Null when a signal ended it. */
  exit_code: orNull(whole()),
  /** As `SIGTERM`. */
  signal: orNull(text()),
  /** Its time was up. */
  timed_out: flag(),
  duration_ms: whole(),
  /** What it wrote, whether it was passed on or not. */
  bytes_stdout: whole(),
  bytes_stderr: whole(),
  /** Output was cut off, or its time was up. */
  truncated: flag(),
}

export const EVENTS = {
  'exec.stdout': OUTPUT,
  'exec.stderr': OUTPUT,
  'exec.exit': EXIT,
  /** It could not be started, was ended for its output, or nobody knows how it ended. `data.code`: the name of the error. */
  'exec.error': {
    ...EVENT,
    code: whole({ min: Number.MIN_SAFE_INTEGER }),
    message: text(),
    data: any<Readonly<Record<string, unknown>>>(),
  },
  'pty.output': { ...OUTPUT, pty_id: text() },
  'pty.exit': { ...EXIT, pty_id: text() },
  /** Events between these cursors, and they too, are not kept any more. */
  'session.gap': { ...SESSION, from: whole(), to: whole() },
} as const

export type EventName = keyof typeof EVENTS
export type EventParams<E extends EventName> = Sent<(typeof EVENTS)[E]>
export type RexdEvent = { [E in EventName]: { readonly method: E; readonly params: EventParams<E> } }[EventName]

/** What every method answers. */
export const RESULTS = {
  'session.open': {
    ...SESSION,
    ...SERVER,
    ...GRANT,
    /** By which its caller comes back to it; only where it waits for that. */
    resume_token: may(text()),
    /** Milliseconds that it waits. */
    resume_window_ms: may(whole()),
  },
  'session.resume': { ...INFO, ...SERVER },
  'session.events': {
    events: list(any<RexdEvent & { readonly jsonrpc: '2.0' }>()),
    /** Of the last of them, or as asked. */
    cursor: whole(),
    /** Events that are not kept any more; null: none are missing. */
    gap: orNull(record({ from: whole(), to: whole() })),
  },
  /** `terminated`: how many processes were ended by it. */
  'session.close': { ...DONE, terminated: whole() },
  'session.info': INFO,
  'exec.start': STARTED,
  'exec.wait': STATUS,
  /** `ok` false: it was over already. */
  'exec.kill': DONE,
  'exec.input': TAKEN,
  'pty.open': { ...STARTED, pty_id: text() },
  'pty.input': TAKEN,
  'pty.resize': DONE,
  'pty.close': DONE,
  'fs.read': {
    path: text(),
    /** Of the whole file. */
    size: whole(),
    ...CHANGED,
    encoding: ENCODING,
    content: text(),
    /** What was read is no UTF-8: bytes that are none became U+FFFD. */
    lossy: may(flag()),
    /** The file goes on behind the content. */
    truncated: flag(),
  },
  'fs.write': {
    path: text(),
    bytes_written: whole(),
    ...CHANGED,
    /** It was not there before. */
    created: flag(),
    /** Nobody could see anything between what was there and what is. */
    atomic: flag(),
  },
  /** `entries`: by path. `truncated`: there are more; which of them are here is not said. */
  'fs.list': { path: text(), entries: list(record(ENTRY)), truncated: flag() },
  /** `matches`: whole paths, sorted. */
  'fs.glob': { path: text(), matches: list(text()), truncated: flag() },
  /** Where `exists` is false, all that follows is null. */
  'fs.stat': {
    path: text(),
    exists: flag(),
    /** Of a link, the link itself. */
    type: orNull(FILE_TYPE),
    ...MAYBE_CHANGED,
    /** Permission bits as octal text: `0644`. */
    mode: orNull(text()),
    uid: orNull(whole()),
    gid: orNull(whole()),
    /** What a link says; null for everything else. */
    symlink_target: orNull(text()),
  },
  /** `bytes_written`: of the whole file. */
  'fs.edit': { path: text(), bytes_written: whole(), replacements: whole(), ...CHANGED, created: flag() },
  /** Whole paths, in the order of the patch. */
  'fs.patch': {
    path: text(),
    added: list(text()),
    updated: list(text()),
    deleted: list(text()),
    moved: list(record({ from: text(), to: text() })),
  },
} as const satisfies Record<Method, object>

export type Result<M extends Method> = Sent<(typeof RESULTS)[M]>
export type SessionGrant = Sent<typeof GRANT>
export type SessionInfo = Sent<typeof INFO>
export type ProcessStatus = Sent<typeof STATUS>
export type ProcessSummary = Sent<typeof SUMMARY>
export type FsEntry = Sent<typeof ENTRY>
