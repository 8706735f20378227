import { HOSTS } from '../desk/approval-request.ts'
import {
  ENCODING,
  type Sent,
  any,
  count,
  flag,
  integer,
  list,
  nameOf,
  oneOf,
  optional,
  orNull,
  record,
  text,
  textOf,
} from '../json-table.ts'
import type { CapabilityName, LimitName } from './fields.ts'
import { SESSION_NOTICES } from '../reasons.ts'
import type { Method } from './methods.ts'

/** Number of processes that the command left running and that were ended, or absent. */
const DESCENDANTS_ENDED = optional(count)

export const PROTOCOL = 'rexd/1'

const SESSION = { session_id: text }
const PROCESS = { ...SESSION, process_id: text }

/** Rights of a session. */
const GRANT = {
  capabilities: list(textOf<CapabilityName>({})),
  /** Limits in force. Servers of other implementations may lack some. */
  limits: any<Readonly<Partial<Record<LimitName, number>>>>(),
  /** Relative paths start at the first of them. Empty for a mesh agent. */
  workspace_roots: list(text),
  /** Mesh agent that runs the commands, or absent for the server. */
  target: optional(text),
}

const STATUS = {
  status: oneOf(['running', 'exited', 'killed', 'timed_out']),
  /** Null while it runs, and if a signal ended it. */
  exit_code: orNull(count),
  /** The signal that ended it, such as `SIGTERM`. */
  signal: orNull(text),
  /** Bytes that it wrote, including those not forwarded. */
  bytes_stdout: count,
  bytes_stderr: count,
  /** The program is paused until its output is read. Its end event comes after that output. */
  held: flag,
  descendants_ended: DESCENDANTS_ENDED,
}

const SUMMARY = {
  process_id: text,
  argv: list(text),
  /** ISO 8601. */
  started_at: text,
  /** Null on a mesh agent, which does not report it. */
  cwd: orNull(text),
  ...STATUS,
}

const INFO = {
  ...SESSION,
  client_name: text,
  /** ISO 8601. */
  opened_at: text,
  /** Default directory of commands. Null on a mesh agent, which does not report it. */
  cwd: orNull(text),
  ...GRANT,
  /** Running and recently ended processes. */
  processes: list(record(SUMMARY)),
  /** Detached processes of all sessions. Present only with `exec.detach`. */
  detached: optional(list(record(SUMMARY))),
}

const SERVER = {
  protocol: text,
  server_version: text,
  /** The server supports `tell_waiting`. It sends `exec.waiting` only to clients that request it. */
  tells_waiting: optional(flag),
}

const STARTED = {
  process_id: text,
  /** ISO 8601. */
  started_at: text,
  /** Timeout in force, which is less than requested if that exceeded the limit. */
  timeout_ms: count,
  max_output_bytes: count,
  /** Host of the run, or absent if the server does not choose among hosts. `agent_id` is that of a node. */
  ran_on: optional(record({ host: oneOf(HOSTS), agent_id: orNull(text), name: orNull(text) })),
  /** Preferences that exceeded the configuration and were reduced, or absent. */
  cut_wishes: optional(list(record({ key: text, asked: text, got: text }))),
  /** The target records the output, or its operators may look on. Absent if neither is so. */
  notices: optional(list(nameOf(SESSION_NOTICES))),
}

/** Number of accepted bytes of `data`. Send the rest again. */
const TAKEN = { accepted_bytes: count }
const DONE = { ok: flag }

const FILE_TYPE = oneOf(['file', 'dir', 'symlink', 'other'])
/** `mtime` is in ISO 8601 with nine decimals, so that equal texts are equal times. `mtime_ms` has whole milliseconds since 1970. */
const CHANGED = { mtime: text, mtime_ms: count }
/** Null if unknown or if the file does not exist. */
const MAYBE_CHANGED = { size: orNull(count), mtime: orNull(text), mtime_ms: orNull(count) }

const ENTRY = {
  name: text,
  path: text,
  type: FILE_TYPE,
  ...MAYBE_CHANGED,
}

// ---- events, sent unrequested ----

/** 1, 2, 3, … in a session with stored events, or absent in others. */
const EVENT = { ...PROCESS, cursor: optional(count) }
/** `seq` counts 1, 2, 3, … for each stream of each process. */
const OUTPUT = { ...EVENT, seq: count, data: text, encoding: ENCODING }
/** The last event of a process that has run. */
const EXIT = {
  ...EVENT,
  /** Null if a signal ended it. */
  exit_code: orNull(count),
  /** Such as `SIGTERM`. */
  signal: orNull(text),
  /** True if its timeout ended it. */
  timed_out: flag,
  duration_ms: count,
  /** Bytes that it wrote, including those not forwarded. */
  bytes_stdout: count,
  bytes_stderr: count,
  /** Output was cut, or the timeout ended it. */
  truncated: flag,
  descendants_ended: DESCENDANTS_ENDED,
}

export const EVENTS = {
  'exec.stdout': OUTPUT,
  'exec.stderr': OUTPUT,
  'exec.exit': EXIT,
  /** The program could not be started, was ended because of its output, or its end is unknown. `data.code` is the name of the error. */
  'exec.error': {
    ...EVENT,
    code: integer,
    message: text,
    data: any<Readonly<Record<string, unknown>>>(),
  },
  /** The command of call `call` needs an approval and has not started. `question_id` is null if the target asks instead of this host. */
  'exec.waiting': {
    ...EVENT,
    call: any<string | number | null>(),
    question_id: orNull(text),
    expires_in_ms: count,
  },
  'pty.output': { ...OUTPUT, pty_id: text },
  'pty.exit': { ...EXIT, pty_id: text },
  /** Events from one cursor to the other, inclusive, are no longer stored. */
  'session.gap': { ...SESSION, from: count, to: count },
} as const

export type EventName = keyof typeof EVENTS
export type EventParams<E extends EventName> = Sent<(typeof EVENTS)[E]>
export type RexdEvent = { [E in EventName]: { readonly method: E; readonly params: EventParams<E> } }[EventName]

export const RESULTS = {
  'session.open': {
    ...SESSION,
    ...SERVER,
    ...GRANT,
    /** Token for `session.resume`. Only a resumable session has one. */
    resume_token: optional(text),
    /** Time that the session waits for its client, in milliseconds. */
    resume_window_ms: optional(count),
  },
  'session.resume': { ...INFO, ...SERVER },
  'session.events': {
    events: list(any<RexdEvent & { readonly jsonrpc: '2.0' }>()),
    /** Cursor of the last of these events. If `events` is empty, the requested cursor. */
    cursor: count,
    /** Events that are no longer stored, or null. */
    gap: orNull(record({ from: count, to: count })),
  },
  /** `terminated` is the number of processes that were ended. */
  'session.close': { ...DONE, terminated: count },
  'session.info': INFO,
  'exec.start': STARTED,
  'exec.wait': STATUS,
  /** `ok` is false if the process had ended already. */
  'exec.kill': DONE,
  'exec.input': TAKEN,
  'pty.open': { ...STARTED, pty_id: text },
  'pty.input': TAKEN,
  'pty.resize': DONE,
  'pty.close': DONE,
  'fs.read': {
    path: text,
    /** Size of the whole file. */
    size: count,
    ...CHANGED,
    encoding: ENCODING,
    content: text,
    /** The content is not valid UTF-8. U+FFFD replaces the invalid bytes. */
    lossy: optional(flag),
    /** The file continues after the content. */
    truncated: flag,
  },
  'fs.write': {
    path: text,
    bytes_written: count,
    ...CHANGED,
    /** The file did not exist before. */
    created: flag,
    /** No reader can have seen a state between old and new content. */
    atomic: flag,
  },
  /** `entries` are sorted by path. If `truncated`, there are more, and these are not necessarily the first. */
  'fs.list': { path: text, entries: list(record(ENTRY)), truncated: flag },
  /** `matches` are absolute paths, sorted. */
  'fs.glob': { path: text, matches: list(text), truncated: flag },
  /** If `exists` is false, all later fields are null. */
  'fs.stat': {
    path: text,
    exists: flag,
    /** Type of the path itself, without following a link. */
    type: orNull(FILE_TYPE),
    ...MAYBE_CHANGED,
    mode: orNull(text).says('octal, such as 0644'),
    uid: orNull(count),
    gid: orNull(count),
    /** Null except for a link. */
    symlink_target: orNull(text).says('target of the symbolic link, as stored in it'),
  },
  /** `bytes_written` is the size of the whole file. */
  'fs.edit': { path: text, bytes_written: count, replacements: count, ...CHANGED, created: flag },
  /** Absolute paths in the order of the patch. */
  'fs.patch': {
    path: text,
    added: list(text),
    updated: list(text),
    deleted: list(text),
    moved: list(record({ from: text, to: text })),
  },
} as const satisfies Record<Method, object>

export type Result<M extends Method> = Sent<(typeof RESULTS)[M]>
/** Grant of an x0x server, which has all limits. */
export type SessionGrant = Omit<Sent<typeof GRANT>, 'limits'> & { readonly limits: Readonly<Record<LimitName, number>> }
export type SessionInfo = Sent<typeof INFO>
export type ProcessStatus = Sent<typeof STATUS>
export type ProcessSummary = Sent<typeof SUMMARY>
export type FsEntry = Sent<typeof ENTRY>
