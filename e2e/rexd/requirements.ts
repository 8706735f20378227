import { METHODS, PARAMS } from '../../src/doors/rpc/schemas.ts'
import { EXEC_REQUIREMENTS } from './requirements-exec.ts'
import { PROCESS_LIMIT_REQUIREMENTS } from './requirements-process-limits.ts'
import { PROCESS_REQUIREMENTS } from './requirements-process.ts'
import { PROTOCOL_REQUIREMENTS } from './requirements-protocol.ts'
import { READ_REQUIREMENTS } from './requirements-read.ts'
import { SESSION_STATE_REQUIREMENTS } from './requirements-session-state.ts'
import { SESSION_REQUIREMENTS } from './requirements-session.ts'
import { STDIN_REQUIREMENTS } from './requirements-stdin.ts'
import { WRITE_REQUIREMENTS } from './requirements-write.ts'
import type { Requirement } from './requirement.ts'

/** Everything that REXD/1 requires of a server, whatever carries its messages. */
export const REQUIREMENTS: readonly Requirement[] = [
  ...PROTOCOL_REQUIREMENTS,
  ...SESSION_REQUIREMENTS,
  ...SESSION_STATE_REQUIREMENTS,
  ...EXEC_REQUIREMENTS,
  ...STDIN_REQUIREMENTS,
  ...PROCESS_REQUIREMENTS,
  ...PROCESS_LIMIT_REQUIREMENTS,
  ...READ_REQUIREMENTS,
  ...WRITE_REQUIREMENTS,
]

/** The error codes of the specification, those of JSON-RPC 2.0 itself, and the two that files needed besides. */
export const ERROR_CODES = [
  -32_700, -32_600, -32_601, -32_602, -32_603, -32_001, -32_002, -32_003, -32_004, -32_005, -32_006, -32_007, -32_008, -32_009, -32_010,
]

/** The members that the specification gives each answer. */
const ANSWERS: Readonly<Record<string, readonly string[]>> = {
  'session.open': ['session_id', 'protocol', 'server_version', 'capabilities', 'limits', 'workspace_roots'],
  'session.info': ['cwd', 'processes', 'limits'],
  'exec.start': ['process_id', 'started_at'],
  'exec.wait': ['status', 'exit_code', 'signal', 'bytes_stdout', 'bytes_stderr'],
  'exec.kill': ['ok'],
  'exec.input': ['accepted_bytes'],
  'fs.read': ['path', 'size', 'mtime', 'encoding', 'content', 'truncated'],
  'fs.write': ['path', 'bytes_written', 'mtime', 'created'],
  'fs.list': ['path', 'entries', 'entries.name', 'entries.path', 'entries.type', 'entries.size', 'entries.mtime'],
  'fs.glob': ['matches'],
  'fs.stat': ['path', 'exists', 'type', 'size', 'mtime', 'mode', 'uid', 'gid', 'symlink_target'],
  'fs.edit': ['replacements', 'mtime'],
  'fs.patch': ['added', 'updated', 'deleted', 'moved'],
}

/** The members that it gives each event; `truncated` is ours. */
const OUTPUT = ['session_id', 'process_id', 'seq', 'data', 'encoding']
export const EVENTS: Readonly<Record<string, readonly string[]>> = {
  'exec.stdout': OUTPUT,
  'exec.stderr': OUTPUT,
  'exec.exit': ['session_id', 'process_id', 'exit_code', 'signal', 'timed_out', 'duration_ms', 'bytes_stdout', 'bytes_stderr', 'truncated'],
  'exec.error': ['session_id', 'process_id', 'code', 'message', 'data'],
}

type Shape = Readonly<Record<string, unknown>>

const shapeOf = (schema: unknown): Shape | null => {
  const { shape, unwrap } = schema as { shape?: Shape; unwrap?: () => unknown }
  if (shape !== undefined) return shape
  return unwrap === undefined ? null : shapeOf((schema as { unwrap(): unknown }).unwrap())
}

/** Every field below a name, and the fields of a field. */
const fieldsOf = (name: string, schema: unknown): string[] =>
  Object.entries(shapeOf(schema) ?? {}).flatMap(([field, inner]) => [`${name}.${field}`, ...fieldsOf(`${name}.${field}`, inner)])

const members = (table: Readonly<Record<string, readonly string[]>>): string[] =>
  Object.entries(table).flatMap(([name, fields]) => fields.map((field) => `${name}:${field}`))

/** Terminals have a suite of their own. */
const COVERED = METHODS.filter((method) => !method.startsWith('pty.'))

/** Every name that some row must be about, and no others. */
export const NAMES: readonly string[] = [
  ...COVERED,
  ...COVERED.flatMap((method) => fieldsOf(method, PARAMS[method])),
  ...members(ANSWERS),
  ...Object.keys(EVENTS),
  ...members(EVENTS),
  ...ERROR_CODES.map(String),
]
