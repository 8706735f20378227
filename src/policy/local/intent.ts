import type { ErrorCode } from '../../base/errors.ts'
import { commandSize } from '../../protocol/api/rules.ts'
import { MAX_COMMAND_JSON } from '../../protocol/limits/daemon.ts'
import type { Capability } from '../../protocol/rexd/fields.ts'
import type { Terminal } from '../../executor-api/local.ts'
import type { RunCaps } from '../permit.ts'
import type { Root } from './file-permit.ts'
import type { LocalLimits } from './policy.ts'

/** What a caller asks of a session; null = all that there is. */
export interface SessionIntent {
  /** As they were found below the policy's own, with a permit of `authorizeFile`. */
  readonly roots: readonly Root[] | null
  readonly capabilities: readonly string[] | null
  readonly limits: Readonly<Partial<Record<keyof LocalLimits, number>>>
  /** An agent of the mesh, whose own ACL then decides; null: this host. */
  readonly target: string | null
}

/** What a session may do: never more than the policy, and it never grows. */
export interface SessionRights {
  readonly roots: readonly Root[]
  readonly capabilities: ReadonlySet<Capability>
  readonly limits: LocalLimits
  /** Where its commands run; null: here. */
  readonly target: string | null
}

/** A program that a caller of this host's own doors asks for, decoded and not yet allowed. */
export interface LocalRunIntent {
  readonly argv: readonly string[]
  /** The argv is `/bin/sh -c TEXT`, because a shell was asked for. */
  readonly shell: boolean
  /** Null: on pipes. */
  readonly terminal: Terminal | null
  readonly detach: boolean
  /** More of stdin may follow. */
  readonly input: boolean
  readonly env: Readonly<Record<string, string>>
  /** Nothing of the policy's environment. */
  readonly clear_env?: boolean
  /** Milliseconds; null = the default. */
  readonly timeout_ms: number | null
  readonly max_output_bytes: number | null
}

/** Refused: a row of the error table, what to say, and facts for programs. */
export interface Refused {
  readonly kind: 'refused'
  readonly code: ErrorCode
  readonly message: string
  readonly data: Readonly<Record<string, unknown>>
}

export const refused = (code: ErrorCode, message: string, data: Record<string, unknown> = {}): Refused =>
  Object.freeze({ kind: 'refused', code, message, data })

/** `target`: of the session. */
export const ungranted = (capability: Capability, target: string | null = null): Refused => {
  const here = `this session may not use ${capability}${KEYS[capability] ?? ''}`
  const there = `a session of a target has no ${capability}: the mesh carries whole commands and their output`
  return refused('unsupported_capability', target === null ? here : there, { capability })
}

/** The key of the configuration that grants it, for the message. */
const KEYS: Readonly<Partial<Record<Capability, string>>> = {
  'exec.shell': '; security.allow_shell grants it',
  'exec.detach': '; security.allow_detach grants it, over HTTP and WebSocket, and to x0x mcp for a target',
  pty: '; security.allow_pty grants it',
  'fs.write': '; security.allow_write grants it',
  target: '; security.allow_targets grants it',
}

/** Refuses because all slots are taken. */
export const noSlot = (limits: LocalLimits, detach: boolean): Refused => {
  const limit = detach ? 'max_detached_processes' : 'max_processes_per_session'
  const max = limits[limit]
  const whose = detach ? `${max} detached processes run` : `this session runs ${max} processes`
  return refused('resource_limit', `${whose}, which is all that may`, { limit, max })
}

/** The system ends every text at its first NUL, and gets U+FFFD for half a surrogate pair: what would run is not what the journal says. */
export const impossibleText = ({ argv, env }: LocalRunIntent): Refused | null =>
  [...argv, ...Object.entries(env).flat()].some((text) => text.includes('\0') || !text.isWellFormed())
    ? refused('bad_request', 'argv, env: not valid Unicode, or with a NUL character')
    : null

/** What runs stands whole in one line of the journal. */
export const tooLong = ({ argv, env }: LocalRunIntent): Refused | null => {
  const asked = commandSize(argv, Object.keys(env))
  if (asked <= MAX_COMMAND_JSON) return null
  const text = `argv and the names of env: ${asked} bytes as JSON, where ${MAX_COMMAND_JSON} are allowed; give more by stdin`
  return refused('resource_limit', text, { limit: 'argv', asked, max: MAX_COMMAND_JSON })
}

/** Refuses for a capability that the intent needs and the session does not have. */
export const missingCapability = (intent: LocalRunIntent, { capabilities, target }: SessionRights): Refused | null => {
  const wanted: readonly [boolean, Capability][] = [
    [true, 'exec'],
    [intent.shell, 'exec.shell'],
    [intent.terminal !== null, 'pty'],
    [intent.detach, 'exec.detach'],
    [intent.input, 'exec.input'],
  ]
  const missing = wanted.find(([asked, capability]) => asked && !capabilities.has(capability))
  return missing === undefined ? null : ungranted(missing[1], target)
}

/** The limits of a run: its caller's wishes, cut to those of the session. */
export const capsOf = (intent: LocalRunIntent, limits: LocalLimits): RunCaps | Refused => {
  const [longest, usual] = intent.detach
    ? ([limits.max_detached_ms, limits.max_detached_ms] as const)
    : ([limits.hard_timeout_ms, limits.default_timeout_ms] as const)
  const timeout = intent.timeout_ms ?? usual
  const output = intent.max_output_bytes ?? limits.max_output_bytes
  if (!isAmount(timeout)) return noAmount('timeout_ms', timeout)
  if (!isAmount(output)) return noAmount('max_output_bytes', output)
  const timeout_ms = Math.min(timeout, longest)
  const bytes = Math.min(output, limits.max_output_bytes)
  return {
    max_output_bytes: bytes,
    max_stdout_bytes: bytes,
    max_stderr_bytes: bytes,
    max_stdin_bytes: Number.MAX_SAFE_INTEGER,
    warn_stdout_bytes: Number.MAX_SAFE_INTEGER,
    warn_stderr_bytes: Number.MAX_SAFE_INTEGER,
    warn_duration_ms: Number.MAX_SAFE_INTEGER,
    keep_bytes: null,
    max_duration_ms: longest,
    timeout_ms,
    timeout_clamped: false,
  }
}

export const isAmount = (value: number): boolean => Number.isSafeInteger(value) && value >= 1

export const noAmount = (name: string, value: number): Refused =>
  refused('bad_request', `${name}: ${value} is no whole number above 0`, { limit: name, asked: String(value) })
