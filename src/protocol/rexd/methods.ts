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

/** `unicode`: JSON can escape half a surrogate pair, which has no form in UTF-8, and so none in files, journals and programs. */
const NAME = textOf({ min: 1, max: MAX_NAME, unicode: true })
const PATH = textOf({ min: 1, max: MAX_PATH, unicode: true })
const POSITIVE = positive
const SIDE = wholeUpTo(MAX_TERMINAL_SIDE, 1)
/** `mtime` of an answer, or its `mtime_ms`. */
const FILE_TIME = either(textOf({ max: MAX_NAME }), integer)
const NO = byDefault(false, flag)
const NO_VARIABLES: Readonly<Record<string, string>> = {}
const ENCODED = byDefault('utf8', ENCODING)

const SESSION = { session_id: NAME }
const PROCESS = { ...SESSION, process_id: NAME }
const TERMINAL = { ...SESSION, pty_id: NAME }

/** What is to run, where, and with which variables. */
const PROGRAM = {
  ...SESSION,
  /** The program and its arguments; either this or `command`. */
  argv: optional(list(text, { min: 1, max: MAX_ARGV_TOKENS })),
  /** A text for `/bin/sh`, together with `shell: true`. */
  command: optional(textOf({ min: 1 })),
  shell: NO,
  /** By a login shell, which reads the profiles of the user there. */
  login: NO,
  cwd: optional(PATH),
  /** Variables that are set beside those that the server sets. */
  env: byDefault(NO_VARIABLES, map(NAME, text, { max: MAX_VARIABLES })),
  timeout_ms: optional(count),
  max_output_bytes: optional(POSITIVE),
  /** Where it runs, where the server's `[tools.exec]` lets callers choose. */
  host: optional(oneOf(HOSTS)),
  /** With `host` node: the id, name or address of an agent of the mesh. */
  node: optional(NAME),
  /** These narrow what is configured. */
  security: optional(oneOf(SECURITIES)),
  ask: optional(oneOf(ASKS)),
  /** Be told by `exec.waiting` that somebody must allow it first. Of a server that says `tells_waiting`. */
  tell_waiting: NO,
}

/** What a session may ask for below what the server grants. */
const LIMITS = {
  /** Output of one process, both streams together. */
  max_output_bytes: optional(POSITIVE),
  /** What one `fs.read` answers at most. */
  max_file_read_bytes: optional(POSITIVE),
  max_processes_per_session: optional(POSITIVE),
  /** Of a command that names no time. */
  default_timeout_ms: optional(POSITIVE),
  /** No command runs longer. */
  hard_timeout_ms: optional(POSITIVE),
}

/** The params of every method of REXD/1. Times are milliseconds, sizes are bytes. */
export const METHODS = {
  'session.open': {
    /** Who asks, for the journal of the server. */
    client_name: NAME,
    client_version: optional(NAME),
    /** The agent of the mesh on which programs run, where the server has a mesh. Default: the server itself. */
    target: optional(NAME),
    /** The directories that the session may touch, each below one that the server allows. Default: all of the server's. */
    workspace_roots: optional(list(PATH, { max: MAX_ROOTS })),
    /** The session gets those of them that the server grants. Default: all. */
    requested_capabilities: optional(list(textOf<CapabilityName>({ min: 1, max: MAX_NAME, unicode: true }), { max: MAX_ROOTS })),
    limits: byDefault({}, record(LIMITS)),
    /** When the connection is lost the session waits a while for its caller to come back. Not over standard input and output. */
    resumable: NO,
  },
  /** Comes back to a session by another connection. `cursor`: of the last event that the caller has. */
  'session.resume': { ...SESSION, resume_token: NAME, cursor: byDefault(0, count) },
  /** Events of a session that are kept, where none come by themselves. */
  'session.events': {
    ...SESSION,
    /** Of the last event that the caller has. */
    cursor: count,
    /** How long to wait for one more. */
    timeout_ms: byDefault(0, wholeUpTo(MAX_EVENTS_WAIT_MS)),
  },
  /** Ends the session and every process of it. */
  'session.close': SESSION,
  'session.info': SESSION,
  /** Starts a program; its output and its end come as events. */
  'exec.start': {
    ...PROGRAM,
    /** What the program reads, at most 1 MiB. Default: nothing. */
    stdin: optional(text),
    stdin_encoding: ENCODED,
    /** More of stdin follows by `exec.input`. */
    stdin_open: NO,
    /** More output than it may write ends it, instead of being cut off. */
    fail_on_limit: NO,
    /** It outlives the session. */
    detach: NO,
  },
  /** `timeout_ms`: how long to wait for the end of the process; 0 asks only for its status. Default: without limit. */
  'exec.wait': { ...PROCESS, timeout_ms: optional(count) },
  /** `signal`: as `KILL` or `SIGKILL`. While somebody is asked whether it may begin, any takes that back. */
  'exec.kill': { ...PROCESS, signal: byDefault('TERM', textOf({ min: 1, max: MAX_SIGNAL_NAME })) },
  /** `eof`: nothing more comes. It counts only where all of `data` was taken. */
  'exec.input': { ...PROCESS, data: text, encoding: ENCODED, eof: NO },
  /** Starts a program on a terminal; its output comes as events. `timeout_ms` is by default the longest that the session allows. */
  'pty.open': { ...PROGRAM, cols: byDefault(80, SIDE), rows: byDefault(24, SIDE) },
  'pty.input': { ...TERMINAL, data: text, encoding: ENCODED },
  'pty.resize': { ...TERMINAL, cols: SIDE, rows: SIDE },
  /** `kill`: SIGHUP, and SIGKILL to what still runs after the grace; else SIGHUP alone. */
  'pty.close': { ...TERMINAL, kill: byDefault(true, flag) },
  'fs.read': {
    ...SESSION,
    /** Relative paths begin at the session's first root, here and below. */
    path: PATH,
    /** The first byte. */
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
    /** `create`: nothing may stand there. `replace`: whether it was there or not. `append`: behind what is there, if anything. */
    mode: byDefault('replace', oneOf(['create', 'replace', 'append'])),
    /** Make the directories that are missing on the way. */
    mkdir_parents: NO,
    /**
     * Replaces the file by a new one, where that can keep all rights of the old one: see `docs/rexd.md`. Default: the
     * file is written over in its place. Means nothing to `append`, nor where no file is there.
     */
    atomic: NO,
    /** The file must be there and have changed last at exactly this time. */
    expected_mtime: optional(FILE_TIME),
  },
  /** `max_entries`: at most 10,000, which is the default. */
  'fs.list': { ...SESSION, path: PATH, recursive: NO, max_entries: optional(POSITIVE) },
  'fs.glob': {
    ...SESSION,
    /** One that begins at `/` is below a root, and has no `cwd`. */
    pattern: textOf({ min: 1, max: MAX_TEXT, unicode: true }),
    /** Where the pattern begins. Default: the first root. */
    cwd: optional(PATH),
    /** At most 10,000, which is the default. */
    max_matches: optional(POSITIVE),
  },
  'fs.stat': { ...SESSION, path: PATH },
  'fs.edit': {
    ...SESSION,
    path: PATH,
    /** Empty: all that is there, if anything; the file is made where there is none. */
    old_string: text,
    new_string: text,
    /** Every place; else the old text must be there exactly once. */
    replace_all: NO,
    expected_mtime: optional(FILE_TIME),
  },
  'fs.patch': {
    ...SESSION,
    /** From `*** Begin Patch` to `*** End Patch`; what stands around it means nothing. */
    patch_text: text,
    /** Where relative paths of the patch begin. Default: the first root. */
    cwd: optional(PATH),
  },
} as const

export type Method = keyof typeof METHODS
/** What a method is asked, as a caller says it. */
export type Params<M extends Method> = Sent<(typeof METHODS)[M]>
/** The same with the defaults. */
export type FullParams<M extends Method> = Received<(typeof METHODS)[M]>
