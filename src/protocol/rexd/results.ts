import { HOSTS } from '../desk/approval-request.ts'
import { ENCODING, type Sent, any, count, flag, integer, list, oneOf, optional, orNull, record, text, textOf } from '../json-table.ts'
import type { CapabilityName, LimitName } from './fields.ts'
import type { Method } from './methods.ts'

/** Processes that the command left running and that were ended with it; absent: there were none. */
const DESCENDANTS_ENDED = optional(count)

/** The version of the protocol that both ends speak. */
export const PROTOCOL = 'rexd/1'

const SESSION = { session_id: text }
const PROCESS = { ...SESSION, process_id: text }

/** What a session was granted. */
const GRANT = {
  capabilities: list(textOf<CapabilityName>({})),
  /** The limits in force. A server of others may lack some. */
  limits: any<Readonly<Partial<Record<LimitName, number>>>>(),
  /** A relative path begins at the first of them. None where it is for an agent of the mesh. */
  workspace_roots: list(text),
  /** The agent of the mesh that its commands run on; absent: they run on the server. */
  target: optional(text),
}

const STATUS = {
  status: oneOf(['running', 'exited', 'killed', 'timed_out']),
  /** Null while it runs, and when a signal ended it. */
  exit_code: orNull(count),
  /** The signal that ended it, as `SIGTERM`. */
  signal: orNull(text),
  /** What it wrote, whether it was passed on or not. */
  bytes_stdout: count,
  bytes_stderr: count,
  /** Its output waits for its reader, and the program with it; the event of its end comes behind that output. */
  held: flag,
  descendants_ended: DESCENDANTS_ENDED,
}

const SUMMARY = {
  process_id: text,
  argv: list(text),
  /** ISO 8601. */
  started_at: text,
  /** Null where the program runs on an agent of the mesh, which does not say. */
  cwd: orNull(text),
  ...STATUS,
}

const INFO = {
  ...SESSION,
  client_name: text,
  /** ISO 8601. */
  opened_at: text,
  /** Where a command runs that names no directory. Null for an agent of the mesh, which does not say. */
  cwd: orNull(text),
  ...GRANT,
  /** Those that run, and those that ended a short time ago. */
  processes: list(record(SUMMARY)),
  /** Processes of any session that have outlived it; only where `exec.detach` is granted. */
  detached: optional(list(record(SUMMARY))),
}

const SERVER = {
  protocol: text,
  server_version: text,
  /** The server takes `tell_waiting` of a start, and tells only a client that asks so. Absent: it does not. */
  tells_waiting: optional(flag),
}

const STARTED = {
  process_id: text,
  /** ISO 8601. */
  started_at: text,
  /** In force; less than was asked for where that was above the limit. */
  timeout_ms: count,
  max_output_bytes: count,
  /** Where it runs; absent where the server's configuration does not choose among hosts. `agent_id`: of a node. */
  ran_on: optional(record({ host: oneOf(HOSTS), agent_id: orNull(text), name: orNull(text) })),
  /** What was wished for and is wider than what is configured, which counts; absent: nothing. */
  cut_wishes: optional(list(record({ key: text, asked: text, got: text }))),
}

/** How many bytes were taken from the beginning of `data`; the rest is to be sent again. */
const TAKEN = { accepted_bytes: count }
const DONE = { ok: flag }

const FILE_TYPE = oneOf(['file', 'dir', 'symlink', 'other'])
/** ISO 8601 with nine digits behind the point, so that equal texts are equal times; and in whole milliseconds since 1970. */
const CHANGED = { mtime: text, mtime_ms: count }
/** Null where the system refuses to say, and where nothing is there. */
const MAYBE_CHANGED = { size: orNull(count), mtime: orNull(text), mtime_ms: orNull(count) }

const ENTRY = {
  name: text,
  /** Whole. */
  path: text,
  type: FILE_TYPE,
  ...MAYBE_CHANGED,
}

// ---- events: messages of the server that answer nothing ----

/** 1, 2, 3, … within a session whose events are kept; only there. */
const EVENT = { ...PROCESS, cursor: optional(count) }
/** `seq`: 1, 2, 3, … for each stream of each process. */
const OUTPUT = { ...EVENT, seq: count, data: text, encoding: ENCODING }
/** The last event of a process that has run. */
const EXIT = {
  ...EVENT,
  /** Null when a signal ended it. */
  exit_code: orNull(count),
  /** As `SIGTERM`. */
  signal: orNull(text),
  /** Its time was up. */
  timed_out: flag,
  duration_ms: count,
  /** What it wrote, whether it was passed on or not. */
  bytes_stdout: count,
  bytes_stderr: count,
  /** Output was cut off, or its time was up. */
  truncated: flag,
  descendants_ended: DESCENDANTS_ENDED,
}

export const EVENTS = {
  'exec.stdout': OUTPUT,
  'exec.stderr': OUTPUT,
  'exec.exit': EXIT,
  /** The program could not be started, was ended because of its output, or its end is not known. `data.code`: the name of the error. */
  'exec.error': {
    ...EVENT,
    code: integer,
    message: text,
    data: any<Readonly<Record<string, unknown>>>(),
  },
  /**
   * Somebody is asked whether a command may begin, whose start is not answered yet. `call`: the `id` of that call.
   * `question_id`: null where it is not this host that asks, but the agent that it is to run on.
   */
  'exec.waiting': {
    ...EVENT,
    call: any<string | number | null>(),
    question_id: orNull(text),
    expires_in_ms: count,
  },
  'pty.output': { ...OUTPUT, pty_id: text },
  'pty.exit': { ...EXIT, pty_id: text },
  /** The events from one cursor to the other, both included, are not kept any more. */
  'session.gap': { ...SESSION, from: count, to: count },
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
    /** Lets the caller come back to the session (`session.resume`); only of a resumable one. */
    resume_token: optional(text),
    /** How long the session waits for that, in milliseconds. */
    resume_window_ms: optional(count),
  },
  'session.resume': { ...INFO, ...SERVER },
  'session.events': {
    events: list(any<RexdEvent & { readonly jsonrpc: '2.0' }>()),
    /** Of the last of these events; where there are none, the cursor that was asked with. */
    cursor: count,
    /** Events that are not kept any more; null: none are missing. */
    gap: orNull(record({ from: count, to: count })),
  },
  /** `terminated`: how many processes were ended by it. */
  'session.close': { ...DONE, terminated: count },
  'session.info': INFO,
  'exec.start': STARTED,
  'exec.wait': STATUS,
  /** `ok` false: it was over already. */
  'exec.kill': DONE,
  'exec.input': TAKEN,
  'pty.open': { ...STARTED, pty_id: text },
  'pty.input': TAKEN,
  'pty.resize': DONE,
  'pty.close': DONE,
  'fs.read': {
    path: text,
    /** Of the whole file. */
    size: count,
    ...CHANGED,
    encoding: ENCODING,
    content: text,
    /** The content is not valid UTF-8: U+FFFD stands for the bytes that are not. */
    lossy: optional(flag),
    /** The file goes on behind the content. */
    truncated: flag,
  },
  'fs.write': {
    path: text,
    bytes_written: count,
    ...CHANGED,
    /** It was not there before. */
    created: flag,
    /** No reader could see anything between the old content and the new. */
    atomic: flag,
  },
  /** `entries`: sorted by path. `truncated`: there are more, and those here need not be the first. */
  'fs.list': { path: text, entries: list(record(ENTRY)), truncated: flag },
  /** `matches`: whole paths, sorted. */
  'fs.glob': { path: text, matches: list(text), truncated: flag },
  /** Where `exists` is false, every field behind it is null. */
  'fs.stat': {
    path: text,
    exists: flag,
    /** Of a link, the link itself. */
    type: orNull(FILE_TYPE),
    ...MAYBE_CHANGED,
    mode: orNull(text).says('octal, such as 0644'),
    uid: orNull(count),
    gid: orNull(count),
    /** Null for everything else than a link. */
    symlink_target: orNull(text).says('what a link says'),
  },
  /** `bytes_written`: of the whole file. */
  'fs.edit': { path: text, bytes_written: count, replacements: count, ...CHANGED, created: flag },
  /** Whole paths, in the order of the patch. */
  'fs.patch': {
    path: text,
    added: list(text),
    updated: list(text),
    deleted: list(text),
    moved: list(record({ from: text, to: text })),
  },
} as const satisfies Record<Method, object>

export type Result<M extends Method> = Sent<(typeof RESULTS)[M]>
/** What a server of ours grants: it lacks no limit. */
export type SessionGrant = Omit<Sent<typeof GRANT>, 'limits'> & { readonly limits: Readonly<Record<LimitName, number>> }
export type SessionInfo = Sent<typeof INFO>
export type ProcessStatus = Sent<typeof STATUS>
export type ProcessSummary = Sent<typeof SUMMARY>
export type FsEntry = Sent<typeof ENTRY>
