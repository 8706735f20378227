import type { ErrorCode } from '../../base/errors.ts'
import { commandSize } from '../../protocol/api/rules.ts'
import { MAX_COMMAND_JSON } from '../../protocol/limits/daemon.ts'
import type { Capability } from '../../protocol/rexd/fields.ts'
import type { Terminal } from '../../executor-api/local.ts'
import type { RunCaps } from '../permit.ts'
import type { Root } from './file-permit.ts'
import type { LocalLimits } from './policy.ts'

/** A client's request for a session. Null requests everything that is available. */
export interface SessionIntent {
  /** Roots that were resolved below the policy's roots with a permit of `authorizeFile`. */
  readonly roots: readonly Root[] | null
  readonly capabilities: readonly string[] | null
  readonly limits: Readonly<Partial<Record<keyof LocalLimits, number>>>
  /** Mesh agent whose own ACL decides, or null for this host. */
  readonly target: string | null
}

/** Rights of a session. They never exceed the policy and never grow. */
export interface SessionRights {
  readonly roots: readonly Root[]
  readonly capabilities: ReadonlySet<Capability>
  readonly limits: LocalLimits
  /** Agent that runs the commands, or null for this host. */
  readonly target: string | null
}

/** A decoded request of a local client to run a program, not yet allowed. */
export interface LocalRunIntent {
  readonly argv: readonly string[]
  /** True if a shell was requested, so that argv is `/bin/sh -c TEXT`. */
  readonly shell: boolean
  /** Null for pipes. */
  readonly terminal: Terminal | null
  readonly detach: boolean
  /** True if more stdin may follow. */
  readonly input: boolean
  readonly env: Readonly<Record<string, string>>
  /** True to leave out the policy's environment. */
  readonly clear_env?: boolean
  /** Milliseconds, or null for the default. */
  readonly timeout_ms: number | null
  readonly max_output_bytes: number | null
}

/** A refusal with error code, message, and data for programs. */
export interface Refused {
  readonly kind: 'refused'
  readonly code: ErrorCode
  readonly message: string
  readonly data: Readonly<Record<string, unknown>>
}

export const refused = (code: ErrorCode, message: string, data: Record<string, unknown> = {}): Refused =>
  Object.freeze({ kind: 'refused', code, message, data })

export const ungranted = (capability: Capability, target: string | null = null): Refused => {
  const here = `this session may not use ${capability}${KEYS[capability] ?? ''}`
  const there = `a session of a target has no ${capability}`
  return refused('unsupported_capability', target === null ? here : there, { capability })
}

/** The configuration key that grants the capability, for the message. */
const KEYS: Readonly<Partial<Record<Capability, string>>> = {
  'exec.shell': '; security.allow_shell grants it',
  'exec.detach': '; security.allow_detach grants it, over HTTP and WebSocket, and to x0x mcp for a target',
  pty: '; security.allow_pty grants it',
  'fs.write': '; security.allow_write grants it',
  target: '; security.allow_targets grants it',
}

export const noSlot = (limits: LocalLimits, detach: boolean): Refused => {
  const limit = detach ? 'max_detached_processes' : 'max_processes_per_session'
  const max = limits[limit]
  const whose = detach ? `${max} detached processes run` : `this session runs ${max} processes`
  return refused('resource_limit', `${whose}; no others are allowed`, { limit, max })
}

/** Refuses NUL, which ends a text, and lone surrogates, which become U+FFFD, because the run would differ from the audit log. */
export const impossibleText = ({ argv, env }: LocalRunIntent): Refused | null =>
  [...argv, ...Object.entries(env).flat()].some((text) => text.includes('\0') || !text.isWellFormed())
    ? refused('bad_request', 'argv, env: not valid Unicode, or with a NUL character')
    : null

/** The audit log has the whole command in one line. */
export const tooLong = ({ argv, env }: LocalRunIntent): Refused | null => {
  const asked = commandSize(argv, Object.keys(env))
  if (asked <= MAX_COMMAND_JSON) return null
  const text = `argv and the names of env: ${asked} bytes as JSON, more than ${MAX_COMMAND_JSON}; send more through stdin`
  return refused('resource_limit', text, { limit: 'argv', asked, max: MAX_COMMAND_JSON })
}

export const missingCapability = (intent: LocalRunIntent, { capabilities, target }: SessionRights): Refused | null => {
  const wanted: readonly [boolean, Capability][] = [
    [true, 'exec'],
    [intent.shell, 'exec.shell'],
    [intent.terminal !== null, 'pty'],
    [intent.detach, 'exec.detach'],
    // A terminal of a target is typed into, and its other commands get their whole stdin with the request.
    [intent.input && (target === null || intent.terminal === null), 'exec.input'],
  ]
  const missing = wanted.find(([asked, capability]) => asked && !capabilities.has(capability))
  // A target has terminals, so the configuration does not grant them.
  return missing === undefined ? null : ungranted(missing[1], missing[1] === 'pty' ? null : target)
}

/** The limits of a run, which are those of the client, cut to those of the session. */
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
  refused('bad_request', `${name}: ${value} is not a whole number above 0`, { limit: name, asked: String(value) })
