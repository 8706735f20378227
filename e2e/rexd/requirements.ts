import { METHODS, paramsOf } from '../../src/doors/rpc/schemas.ts'
import { readDocumented } from './documented.ts'
import { BEYOND_REQUIREMENTS } from './requirements-beyond.ts'
import { EXEC_REQUIREMENTS } from './requirements-exec.ts'
import { HELD_REQUIREMENTS } from './requirements-held.ts'
import { MODE_REQUIREMENTS } from './requirements-modes.ts'
import { PROCESS_LIMIT_REQUIREMENTS } from './requirements-process-limits.ts'
import { PROCESS_REQUIREMENTS } from './requirements-process.ts'
import { PROTOCOL_REQUIREMENTS } from './requirements-protocol.ts'
import { PTY_REQUIREMENTS } from './requirements-pty.ts'
import { READ_REQUIREMENTS } from './requirements-read.ts'
import { RESUME_REQUIREMENTS } from './requirements-resume.ts'
import { SESSION_STATE_REQUIREMENTS } from './requirements-session-state.ts'
import { SESSION_REQUIREMENTS } from './requirements-session.ts'
import { STDIN_REQUIREMENTS } from './requirements-stdin.ts'
import { WRITE_REQUIREMENTS } from './requirements-write.ts'
import type { Requirement } from './requirement.ts'

/** Everything that REXD/1 requires of a server over any transport. */
export const REQUIREMENTS: readonly Requirement[] = [
  ...PROTOCOL_REQUIREMENTS,
  ...SESSION_REQUIREMENTS,
  ...SESSION_STATE_REQUIREMENTS,
  ...RESUME_REQUIREMENTS,
  ...EXEC_REQUIREMENTS,
  ...STDIN_REQUIREMENTS,
  ...PROCESS_REQUIREMENTS,
  ...PROCESS_LIMIT_REQUIREMENTS,
  ...HELD_REQUIREMENTS,
  ...MODE_REQUIREMENTS,
  ...PTY_REQUIREMENTS,
  ...READ_REQUIREMENTS,
  ...WRITE_REQUIREMENTS,
  ...BEYOND_REQUIREMENTS,
]

type Shape = Readonly<Record<string, unknown>>

const shapeOf = (schema: unknown): Shape | null => {
  const { shape, unwrap, in: input } = schema as { shape?: Shape; unwrap?: () => unknown; in?: unknown }
  if (shape !== undefined) return shape
  if (input !== undefined) return shapeOf(input)
  return unwrap === undefined ? null : shapeOf((schema as { unwrap(): unknown }).unwrap())
}

/** All fields below a name, including nested fields. */
const fieldsOf = (name: string, schema: unknown): string[] =>
  Object.entries(shapeOf(schema) ?? {}).flatMap(([field, inner]) => [`${name}.${field}`, ...fieldsOf(`${name}.${field}`, inner)])

const { methods, answers, events, params, errors } = readDocumented()
export const DOCUMENTED_METHODS = methods

/**
 * All names that the requirements must cover: the methods and fields that the server accepts, and the answers, events and errors that
 * docs/rexd.md lists.
 */
export const NAMES: readonly string[] = [
  ...METHODS,
  ...METHODS.flatMap((method) => fieldsOf(method, paramsOf(method))),
  ...answers,
  ...events,
  ...params,
  ...errors,
]
