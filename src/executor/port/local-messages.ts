import { CAPABILITY_NAMES } from '../../protocol/rexd-names.ts'
import { RUN_FRAMES } from '../../protocol/exec.ts'
import { MAX_ARGV_BYTES, MAX_ARGV_TOKENS, MAX_NAME, MAX_PORT_MESSAGE, MAX_SEALED_FRAME, MAX_TEXT } from '../../protocol/limits.ts'
import { DENIAL_REASONS, LOCAL_DOORS } from '../../protocol/reasons.ts'
import {
  MAX_FILE_CHUNK,
  MAX_INLINE_STDIN,
  MAX_PATH,
  MAX_ROOTS,
  MAX_SIGNAL_NAME,
  MAX_TERMINAL_SIDE,
  MAX_VARIABLES,
  MAX_VARIABLE_TEXT,
} from '../../protocol/rexd-limits.ts'
import { bool, bytes, int, list, nullable, oneOf, record, requestId, text, uint, union, type ValueOf } from '../../protocol/schema.ts'

/** Answers carry the `id` of the call they answer. */
const call = { id: uint() }
const session = { session: text(MAX_NAME) }
/** A run's number on this channel, given by the door when it starts the run. */
const run = { run: uint() }
const file = { ...call, ...session, path: text(MAX_PATH) }
const mtime = text(MAX_NAME)
const content = bytes(0, MAX_FILE_CHUNK)

const size = { cols: uint(MAX_TERMINAL_SIDE), rows: uint(MAX_TERMINAL_SIDE) }

/** Values that a session asks for in place of the server's; null = the server's. */
const limits = record('local-limits', {
  max_output_bytes: nullable(uint()),
  max_file_read_bytes: nullable(uint()),
  max_processes_per_session: nullable(uint()),
  default_timeout_ms: nullable(uint()),
  hard_timeout_ms: nullable(uint()),
  max_concurrent_sessions: nullable(uint()),
})

/** From a door of this host to the executor. */
export const toLocalExecutor = union('to-local-executor', {
  /** `available`: what this door can carry. `capabilities`, `roots`: null = all that there are. Answer: session_opened. */
  session_open: [
    0,
    {
      ...call,
      door: oneOf(LOCAL_DOORS),
      client_name: text(MAX_NAME),
      /** An agent of the mesh, where its commands run; null: here. */
      target: nullable(text(MAX_NAME)),
      roots: nullable(list(text(MAX_PATH), MAX_ROOTS)),
      available: list(oneOf(CAPABILITY_NAMES), CAPABILITY_NAMES.length),
      capabilities: nullable(list(text(MAX_NAME), MAX_ROOTS)),
      limits,
    },
  ],
  /** Its programs are ended. Answer: done. */
  session_close: [1, { ...call, ...session }],
  /** Answer: run_accepted, then run_frame until run_closed; or failed. */
  run_start: [
    2,
    {
      ...call,
      ...session,
      ...run,
      argv: list(text(MAX_ARGV_BYTES), MAX_ARGV_TOKENS),
      /** `argv` is `/bin/sh -c TEXT`, because a shell was asked for. */
      shell: bool,
      cwd: nullable(text(MAX_PATH)),
      env: list(record('variable', { name: text(MAX_NAME), value: text(MAX_VARIABLE_TEXT) }), MAX_VARIABLES),
      /** Given to the program at once; more follows in `stdin` frames where `input` is true. */
      stdin: bytes(0, MAX_INLINE_STDIN),
      /** stdin is a pipe; else, without any bytes, it is /dev/null. */
      input: bool,
      timeout_ms: nullable(uint()),
      max_output_bytes: nullable(uint()),
      fail_on_limit: bool,
      detach: bool,
      terminal: nullable(record('terminal', size)),
    },
  ],
  /** `cancel`, `stdin` or `ack` of `local-frame`. */
  run_frame: [3, { ...run, frame: bytes(1, MAX_SEALED_FRAME) }],
  /** Answer: done. */
  run_signal: [4, { ...call, ...run, signal: text(MAX_SIGNAL_NAME) }],
  /** Answer: file_done, as to all that follow. */
  file_read: [5, { ...file, offset: uint(), length: nullable(uint()) }],
  file_write: [
    6,
    {
      ...file,
      mode: oneOf(['create', 'replace', 'append']),
      mkdir_parents: bool,
      atomic: bool,
      expected_mtime: nullable(mtime),
      data: content,
    },
  ],
  file_list: [7, { ...file, recursive: bool, max_entries: nullable(uint()) }],
  file_glob: [8, { ...file, pattern: text(MAX_PATH), max_matches: nullable(uint()) }],
  file_stat: [9, file],
  file_edit: [10, { ...file, old_string: content, new_string: content, replace_all: bool, expected_mtime: nullable(mtime) }],
  /** `path`: what relative paths of the patch go on from. */
  file_patch: [11, { ...file, patch_text: content }],
  /** Of the run's terminal. Answer: done, as to run_hang_up. */
  run_resize: [12, { ...call, ...run, ...size }],
  /** Its terminal is closed. */
  run_hang_up: [13, { ...call, ...run }],
  /** What the door refused by itself, for the journal. Answer: done. */
  session_refused: [
    14,
    { ...call, ...session, method: text(MAX_NAME), code: oneOf(['unknown_session', 'unknown_process']), detail: text(MAX_TEXT) },
  ],
})
export type ToLocalExecutor = ValueOf<typeof toLocalExecutor>

/** From the executor to a door of this host. JSON where the answer is one of the protocol's own objects. */
export const toLocalDoor = union('to-local-door', {
  session_opened: [0, { ...call, ...session, json: text(MAX_PORT_MESSAGE) }],
  done: [1, { ...call, json: text(MAX_PORT_MESSAGE) }],
  /** `timeout_ms`, `max_output_bytes`: what counts, where more was asked for. */
  run_accepted: [
    2,
    {
      ...call,
      request_id: requestId,
      started_at: text(MAX_NAME),
      cwd: nullable(text(MAX_PATH)),
      timeout_ms: uint(),
      max_output_bytes: uint(),
    },
  ],
  file_done: [3, { ...call, json: text(MAX_PORT_MESSAGE), data: content }],
  /** A code of the error table, its text, and its data as JSON. */
  failed: [4, { ...call, code: text(MAX_NAME), message: text(MAX_TEXT), data: text(MAX_SEALED_FRAME) }],
  /** A `local-frame`. */
  run_frame: [5, { ...run, frame: bytes(1, MAX_SEALED_FRAME) }],
  /** Nothing more comes for this run. */
  run_closed: [6, run],
})
export type ToLocalDoor = ValueOf<typeof toLocalDoor>

/** Frames of a run of this host's own doors: those of any run, and how it ended, which nobody has to sign here. */
export const localFrame = union('local-frame', {
  ...RUN_FRAMES,
  /** Always the last. */
  outcome: [
    32,
    {
      request_id: requestId,
      code: nullable(int),
      signal: nullable(uint(255)),
      duration_ms: uint(),
      stdout_bytes_total: uint(),
      stderr_bytes_total: uint(),
      truncated: bool,
      /** It never ran, and why. */
      denial_reason: nullable(oneOf(DENIAL_REASONS)),
      detail: nullable(text(MAX_TEXT)),
      /** How it ended is not known, and why. */
      lost: nullable(text(MAX_TEXT)),
    },
  ],
})
export type LocalFrame = ValueOf<typeof localFrame>
export type LocalOutcome = Extract<LocalFrame, { type: 'outcome' }>
