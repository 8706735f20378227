import { MAX_ARGV_TOKENS, MAX_NAME, MAX_TEXT } from './limits.ts'
import { either, ENCODING, flag, list, map, may, oneOf, record, text, unlessTold, whole, type Received, type Sent } from './rexd-fields.ts'
import { MAX_EVENTS_WAIT_MS, MAX_PATH, MAX_ROOTS, MAX_SIGNAL_NAME, MAX_TERMINAL_SIDE, MAX_VARIABLES } from './rexd-limits.ts'
import type { CapabilityName } from './rexd-names.ts'

/** Half a character of JSON's escapes is none in UTF-8, which files, journal and programs have. */
const NAME = text({ min: 1, max: MAX_NAME, unicode: true })
const PATH = text({ min: 1, max: MAX_PATH, unicode: true })
const POSITIVE = whole({ min: 1 })
const SIDE = whole({ min: 1, max: MAX_TERMINAL_SIDE })
/** `mtime` of an answer, or its `mtime_ms`. */
const FILE_TIME = either(text({ max: MAX_NAME }), whole({ min: Number.MIN_SAFE_INTEGER }))
const NO = unlessTold(false, flag())
const NO_VARIABLES: Readonly<Record<string, string>> = {}
const ENCODED = unlessTold('utf8', ENCODING)

const SESSION = { session_id: NAME }
const PROCESS = { ...SESSION, process_id: NAME }
const TERMINAL = { ...SESSION, pty_id: NAME }

/** What is to run, where, and with which variables. */
const PROGRAM = {
  ...SESSION,
  /** The program and its arguments; either this or `command`. */
  argv: may(list(text(), { min: 1, max: MAX_ARGV_TOKENS })),
  /** A text for `/bin/sh`, together with `shell: true`. */
  command: may(text({ min: 1 })),
  shell: NO,
  /** By a login shell, which reads the profiles of the user there. */
  login: NO,
  cwd: may(PATH),
  /** Variables that are set beside those that the server sets. */
  env: unlessTold(NO_VARIABLES, map(NAME, text(), { max: MAX_VARIABLES })),
  timeout_ms: may(whole()),
  max_output_bytes: may(POSITIVE),
}

/** What a session may ask for below what the server grants. */
const LIMITS = {
  /** Output of one process, both streams together. */
  max_output_bytes: may(POSITIVE),
  /** What one `fs.read` answers at most. */
  max_file_read_bytes: may(POSITIVE),
  max_processes_per_session: may(POSITIVE),
  /** Of a command that names no time. */
  default_timeout_ms: may(POSITIVE),
  /** No command runs longer. */
  hard_timeout_ms: may(POSITIVE),
}

/** The params of every method of REXD/1. Times are milliseconds, sizes are bytes. */
export const METHODS = {
  'session.open': {
    /** Who asks, for the journal of the server. */
    client_name: NAME,
    client_version: may(NAME),
    /** The agent of the mesh that everything happens on, where the server has a mesh; the server itself unless told. */
    target: may(NAME),
    /** Directories below those that the server allows; it may touch nothing else. All of them unless told. */
    workspace_roots: may(list(PATH, { max: MAX_ROOTS })),
    /** It gets those of them that the server grants. All of them unless told. */
    requested_capabilities: may(list(text<CapabilityName>({ min: 1, max: MAX_NAME, unicode: true }), { max: MAX_ROOTS })),
    limits: unlessTold({}, record(LIMITS)),
    /** It waits for its caller for a while when the connection is lost; not over standard input and output. */
    resumable: NO,
  },
  /** Comes back to a session by another connection. `cursor`: of the last event that the caller has. */
  'session.resume': { ...SESSION, resume_token: NAME, cursor: unlessTold(0, whole()) },
  /** Events of a session that are kept, where none come by themselves. */
  'session.events': {
    ...SESSION,
    /** Of the last event that the caller has. */
    cursor: whole(),
    /** How long to wait for one more. */
    timeout_ms: unlessTold(0, whole({ max: MAX_EVENTS_WAIT_MS })),
  },
  /** Ends the session and every process of it. */
  'session.close': SESSION,
  'session.info': SESSION,
  /** Starts a program; what becomes of it is told by events. */
  'exec.start': {
    ...PROGRAM,
    /** What the program reads: at most 1 MiB; nothing unless told. */
    stdin: may(text()),
    stdin_encoding: ENCODED,
    /** More of stdin follows by `exec.input`. */
    stdin_open: NO,
    /** More output than it may write ends it, instead of being cut off. */
    fail_on_limit: NO,
    /** It outlives the session. */
    detach: NO,
  },
  /** `timeout_ms`: how long to wait for its end; 0 asks only how it stands. For ever unless told. */
  'exec.wait': { ...PROCESS, timeout_ms: may(whole()) },
  /** `signal`: as `KILL` or `SIGKILL`. */
  'exec.kill': { ...PROCESS, signal: unlessTold('TERM', text({ min: 1, max: MAX_SIGNAL_NAME })) },
  /** `eof`: nothing more comes. It counts only where all of `data` was taken. */
  'exec.input': { ...PROCESS, data: text(), encoding: ENCODED, eof: NO },
  /** Starts a program on a terminal; what it writes is told by events. Its time is the longest that there is unless told. */
  'pty.open': { ...PROGRAM, cols: unlessTold(80, SIDE), rows: unlessTold(24, SIDE) },
  'pty.input': { ...TERMINAL, data: text(), encoding: ENCODED },
  'pty.resize': { ...TERMINAL, cols: SIDE, rows: SIDE },
  /** `kill`: hang up and end what does not go; else it is only told. */
  'pty.close': { ...TERMINAL, kill: unlessTold(true, flag()) },
  'fs.read': {
    ...SESSION,
    /** Relative paths begin at the session's first root, here and below. */
    path: PATH,
    /** The first byte. */
    offset: unlessTold(0, whole()),
    /** At most the session's `max_file_read_bytes`, which it is unless told. */
    length: may(whole()),
    encoding: ENCODED,
  },
  'fs.write': {
    ...SESSION,
    path: PATH,
    /** At most 2 MiB. */
    content: text(),
    encoding: ENCODED,
    /** `create`: nothing may stand there. `replace`: whether it was there or not. `append`: behind what is there, if anything. */
    mode: unlessTold('replace', oneOf(['create', 'replace', 'append'])),
    /** Make the directories that are missing on the way. */
    mkdir_parents: NO,
    /**
     * A new file in the place of one that is there, where that keeps all of its rights: see `docs/rexd.md`. False unless
     * told: it is written over in its place. Means nothing to `append`, nor to a file that is not there.
     */
    atomic: NO,
    /** The file must be there and have changed last at exactly this time. */
    expected_mtime: may(FILE_TIME),
  },
  /** `max_entries`: 10,000 unless told, and at most. */
  'fs.list': { ...SESSION, path: PATH, recursive: NO, max_entries: may(POSITIVE) },
  'fs.glob': {
    ...SESSION,
    /** One that begins at `/` is below a root, and has no `cwd`. */
    pattern: text({ min: 1, max: MAX_TEXT, unicode: true }),
    /** Where the pattern begins: the first root unless told. */
    cwd: may(PATH),
    /** 10,000 unless told, and at most. */
    max_matches: may(POSITIVE),
  },
  'fs.stat': { ...SESSION, path: PATH },
  'fs.edit': {
    ...SESSION,
    path: PATH,
    /** Empty: all that is there, if anything; the file is made where there is none. */
    old_string: text(),
    new_string: text(),
    /** Every place; else the old text must be there exactly once. */
    replace_all: NO,
    expected_mtime: may(FILE_TIME),
  },
  'fs.patch': {
    ...SESSION,
    /** From `*** Begin Patch` to `*** End Patch`; what stands around it means nothing. */
    patch_text: text(),
    /** Where relative paths of the patch begin: the first root unless told. */
    cwd: may(PATH),
  },
} as const

export type Method = keyof typeof METHODS
/** What a method is asked, as a caller says it. */
export type Params<M extends Method> = Sent<(typeof METHODS)[M]>
/** The same with the defaults. */
export type FullParams<M extends Method> = Received<(typeof METHODS)[M]>
