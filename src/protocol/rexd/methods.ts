import { ASKS, HOSTS, SECURITIES } from '../desk/approval-request.ts'
import {
  ENCODING,
  type Received,
  type Sent,
  byDefault,
  count,
  either,
  flag,
  integer,
  list,
  map,
  oneOf,
  optional,
  positive,
  record,
  text,
  textOf,
  wholeUpTo,
} from '../json-table.ts'
import { MAX_EVENTS_WAIT_MS, MAX_PATH, MAX_ROOTS, MAX_SIGNAL_NAME, MAX_TERMINAL_SIDE, MAX_VARIABLES } from '../limits/rexd.ts'
import { MAX_ARGV_TOKENS, MAX_NAME, MAX_TEXT } from '../limits/wire.ts'
import type { CapabilityName } from './fields.ts'

/** `unicode` excludes lone surrogates. JSON can escape them, but UTF-8, files, logs and programs have no form for them. */
const NAME = textOf({ min: 1, max: MAX_NAME, unicode: true })
const PATH = textOf({ min: 1, max: MAX_PATH, unicode: true })
const POSITIVE = positive
const SIDE = wholeUpTo(MAX_TERMINAL_SIDE, 1)
/** `mtime` of a reply, or its `mtime_ms`. */
const FILE_TIME = either(textOf({ max: MAX_NAME }), integer)
const NO = byDefault(false, flag)
const NO_VARIABLES: Readonly<Record<string, string>> = {}
const ENCODED = byDefault('utf8', ENCODING)

const SESSION = { session_id: NAME }
const PROCESS = { ...SESSION, process_id: NAME }
const TERMINAL = { ...SESSION, pty_id: NAME }

/** The program, its directory and its variables. */
const PROGRAM = {
  ...SESSION,
  /** The program and its arguments, if `command` is absent. */
  argv: optional(list(text, { min: 1, max: MAX_ARGV_TOKENS })),
  /** A text for `/bin/sh`, together with `shell: true`. */
  command: optional(textOf({ min: 1 })),
  shell: NO,
  /** Run by a login shell, which reads the user's profiles on the server. */
  login: NO,
  cwd: optional(PATH),
  /** Variables in addition to those of the server. */
  env: byDefault(NO_VARIABLES, map(NAME, text, { max: MAX_VARIABLES })),
  timeout_ms: optional(count),
  max_output_bytes: optional(POSITIVE),
  /** Host of the run, if the server's `[tools.exec]` allows clients to choose. */
  host: optional(oneOf(HOSTS)),
  /** ID, name or address of a mesh agent, if `host` is node. */
  node: optional(NAME),
  /** These narrow the configured modes. */
  security: optional(oneOf(SECURITIES)),
  ask: optional(oneOf(ASKS)),
  /** Receive `exec.waiting` if the run needs an approval. Supported by servers with `tells_waiting`. */
  tell_waiting: NO,
}

/** Limits that a session may lower. */
const LIMITS = {
  /** Output of one process, both streams together. */
  max_output_bytes: optional(POSITIVE),
  /** Maximum size of one `fs.read` reply. */
  max_file_read_bytes: optional(POSITIVE),
  max_processes_per_session: optional(POSITIVE),
  /** Timeout of a command without its own. */
  default_timeout_ms: optional(POSITIVE),
  /** Maximum duration of a command. */
  hard_timeout_ms: optional(POSITIVE),
}

/** Parameters of all methods of REXD/1. Times are milliseconds, sizes are bytes. */
export const METHODS = {
  'session.open': {
    /** Name of the client, for the server's audit log. */
    client_name: NAME,
    client_version: optional(NAME),
    /** Mesh agent that runs the programs, if the server has a mesh. The default is the server itself. */
    target: optional(NAME),
    /** Directories of the session, each below one that the server allows. By default all of the server's. */
    workspace_roots: optional(list(PATH, { max: MAX_ROOTS })),
    /** Requested capabilities. The session gets those that the server grants. Default: all. */
    requested_capabilities: optional(list(textOf<CapabilityName>({ min: 1, max: MAX_NAME, unicode: true }), { max: MAX_ROOTS })),
    limits: byDefault({}, record(LIMITS)),
    /** If the connection is lost, the session waits for its client to return. Not over standard input and output. */
    resumable: NO,
  },
  /** Returns to a session over another connection. `cursor` is that of the last received event. */
  'session.resume': { ...SESSION, resume_token: NAME, cursor: byDefault(0, count) },
  /** Stored events of a session, if events are not sent unrequested. */
  'session.events': {
    ...SESSION,
    /** Cursor of the last received event. */
    cursor: count,
    /** Time to wait for a further event. */
    timeout_ms: byDefault(0, wholeUpTo(MAX_EVENTS_WAIT_MS)),
  },
  /** Ends the session and all its processes. */
  'session.close': SESSION,
  'session.info': SESSION,
  /** Starts a program. Its output and end are sent as events. */
  'exec.start': {
    ...PROGRAM,
    /** Stdin of the program, at most 1 MiB. Default: none. */
    stdin: optional(text),
    stdin_encoding: ENCODED,
    /** More stdin follows by `exec.input`. */
    stdin_open: NO,
    /** Output beyond the limit ends the program instead of being cut. */
    fail_on_limit: NO,
    /** The program continues after the session ends. */
    detach: NO,
  },
  /** `timeout_ms` is the time to wait for the end of the process, by default without limit. 0 returns its state. */
  'exec.wait': { ...PROCESS, timeout_ms: optional(count) },
  /** `signal` is a name such as `KILL` or `SIGKILL`. If the command waits for an approval, any signal withdraws it. */
  'exec.kill': { ...PROCESS, signal: byDefault('TERM', textOf({ min: 1, max: MAX_SIGNAL_NAME })) },
  /** `eof` ends stdin. It has an effect only if all of `data` was accepted. */
  'exec.input': { ...PROCESS, data: text, encoding: ENCODED, eof: NO },
  /** Starts a program on a terminal. Its output is sent as events. `timeout_ms` is by default the session's maximum. */
  'pty.open': { ...PROGRAM, cols: byDefault(80, SIDE), rows: byDefault(24, SIDE) },
  'pty.input': { ...TERMINAL, data: text, encoding: ENCODED },
  'pty.resize': { ...TERMINAL, cols: SIDE, rows: SIDE },
  /** Sends SIGHUP. With `kill`, SIGKILL follows after the grace period. */
  'pty.close': { ...TERMINAL, kill: byDefault(true, flag) },
  'fs.read': {
    ...SESSION,
    /** In all calls, relative paths start at the session's first root. */
    path: PATH,
    /** Offset of the first byte. */
    offset: byDefault(0, count),
    /** At most the session's `max_file_read_bytes`, which is the default. */
    length: optional(count),
    encoding: ENCODED,
  },
  'fs.write': {
    ...SESSION,
    path: PATH,
    /** At most 2 MiB. */
    content: text,
    encoding: ENCODED,
    /** With `create` the file must not exist. `replace` works with or without an existing file. `append` writes after existing content. */
    mode: byDefault('replace', oneOf(['create', 'replace', 'append'])),
    mkdir_parents: NO,
    /**
     * Replaces the file by a new one if all its permissions can be kept (`docs/rexd.md`). By default the file is overwritten in place. No
     * effect on `append` and new files.
     */
    atomic: NO,
    /** The file must exist with exactly this modification time. */
    expected_mtime: optional(FILE_TIME),
  },
  /** `max_entries` is at most 10,000, which is the default. */
  'fs.list': { ...SESSION, path: PATH, recursive: NO, max_entries: optional(POSITIVE) },
  'fs.glob': {
    ...SESSION,
    /** A pattern that begins with `/` is below a root and has no `cwd`. */
    pattern: textOf({ min: 1, max: MAX_TEXT, unicode: true }),
    /** Directory of the pattern, by default the first root. */
    cwd: optional(PATH),
    /** At most 10,000, which is the default. */
    max_matches: optional(POSITIVE),
  },
  'fs.stat': { ...SESSION, path: PATH },
  'fs.edit': {
    ...SESSION,
    path: PATH,
    /** Empty for the whole file, which is created if it does not exist. */
    old_string: text,
    new_string: text,
    /** Replace all occurrences. Otherwise the old text must occur exactly once. */
    replace_all: NO,
    expected_mtime: optional(FILE_TIME),
  },
  'fs.patch': {
    ...SESSION,
    /** From `*** Begin Patch` to `*** End Patch`. Surrounding text is ignored. */
    patch_text: text,
    /** Directory of relative paths in the patch, by default the first root. */
    cwd: optional(PATH),
  },
} as const

export type Method = keyof typeof METHODS
/** Parameters of a method as the client sends them. */
export type Params<M extends Method> = Sent<(typeof METHODS)[M]>
/** The same with defaults. */
export type FullParams<M extends Method> = Received<(typeof METHODS)[M]>
