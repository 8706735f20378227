import { isVisible } from '../../base/visible-text.ts'
import { type RanOnJson, type ExecPreference, preferenceOf } from '../api/exec-target.ts'
import { commandSize } from '../api/rules.ts'
import { ASKS, HOSTS, SECURITIES } from '../desk/approval-request.ts'
import { type Fields, isTable } from '../json-table.ts'
import { MAX_COMMAND_JSON } from '../limits/daemon.ts'
import { jsonText } from '../lines.ts'

/** The protocol of the console (docs/console.md) has one JSON object per line. Sizes are bytes, times are milliseconds. */

/** Size of one line. Maximal stdin and a command line with its environment fit, in any JSON encoding (6 bytes for one). */
export const MAX_CONSOLE_LINE = 8 * 1024 * 1024
/** Stdin of a command in UTF-8. */
export const MAX_CONSOLE_STDIN = 1024 * 1024
/** Name of the client, which appears in a banner, in each audit log line and in a file name. */
export const MAX_WHOAMI = 64
/** A path, as in Linux. */
const MAX_DIR = 4_096
const MAX_WORDS = 32_768
const MAX_VARIABLES = 1_024
/** A week. A longer timeout is a mistake. */
const MAX_TIMEOUT_S = 604_800
/** Columns and rows of each command's terminal. */
export const CONSOLE_TERMINAL = { cols: 80, rows: 24 } as const
/** Concurrent connections. Further ones receive an error and are closed. */
export const MAX_CONSOLE_CONNECTIONS = 128
/** Connections among these that follow commands. Each may leave some output unread. */
export const MAX_CONSOLE_ATTACHED = 16
/** Commands that run at once. Others wait. */
export const MAX_CONSOLE_RUNS = 64
/** Time from connecting, or from the first byte of a line, to its end. */
export const CONSOLE_LINE_MS = 10_000
/** Time that a used connection may be idle. */
export const CONSOLE_REST_MS = 600_000
/** Time to send a reply. */
export const CONSOLE_REPLY_MS = 30_000
/** Time that a reply waits for its transcript entry, so that a hanging disk does not stop agents. */
export const TRANSCRIPT_WAIT_MS = 2_000
/** From SIGTERM to SIGKILL. */
export const CONSOLE_GRACE_MS = 200

export interface ConsoleRequest {
  readonly whoami: string
  /** Absolute path. */
  readonly dir: string
  readonly envs: Readonly<Record<string, string>>
  readonly exec: readonly string[]
  /** Null for /dev/null. */
  readonly stdin: string | null
  /** Milliseconds, or null for no timeout. */
  readonly timeout_ms: number | null
  /** True to leave out the host's environment. */
  readonly clear_env: boolean
  /** Preferred host and modes, or absent for those of the configuration. */
  readonly wish?: ExecPreference
}

export type ConsoleMessage =
  | { readonly kind: 'request'; readonly request: ConsoleRequest }
  | { readonly kind: 'ping' }
  | { readonly kind: 'abort' }
  | { readonly kind: 'attach'; readonly ansi: boolean }
  /** `problem` describes the error in the line. */
  | { readonly kind: 'bad'; readonly problem: string }

/** Why a command did not end by itself. `refused` means that the line was invalid. */
export type ConsoleError = 'not_found' | 'spawn_failed' | 'aborted' | 'timeout' | 'refused'

export interface ConsoleReply {
  readonly exit: number
  readonly output: string
  readonly error?: ConsoleError
  /** Explanation of `error` for a person. */
  readonly message?: string
  /** Host of the run, or absent if it did not run or the console does not choose among hosts. */
  readonly ran_on?: RanOnJson
  /** Number of processes that the command left running and that were ended, or absent. */
  readonly descendants_ended?: number
}

const REQUEST_FIELDS = ['whoami', 'dir', 'envs', 'exec', 'stdin', 'timeout', 'clear_env', 'host', 'security', 'ask']
/** Preferences that a console supports. Its commands have a terminal and cannot run on a mesh agent. */
const WISHES = { host: HOSTS.filter((host) => host !== 'node'), security: SECURITIES, ask: ASKS }
const ATTACH_FIELDS = ['action', 'ansi']

/** A name from a client, shortened for an error message. */
const named = (name: string): string => JSON.stringify(name.slice(0, 64))

const bad = (problem: string): ConsoleMessage => ({ kind: 'bad', problem })

/** JSON can escape lone surrogates, which a program would receive as another text. */
const isUnicode = (value: unknown): value is string => typeof value === 'string' && value.isWellFormed()
const isText = (value: unknown): value is string => isUnicode(value) && !value.includes('\0')

/** Why a text is not a client name, or null if it is valid. */
export const whoamiProblem = (whoami: unknown): string | null => {
  if (typeof whoami !== 'string' || whoami.trim() === '') return 'whoami: expected the name of the AI agent, such as "Codex"'
  const length = new TextEncoder().encode(whoami).length
  if (length > MAX_WHOAMI) return `whoami: ${length} bytes; the maximum is ${MAX_WHOAMI}`
  // Invisible characters could imitate another name.
  return isVisible(whoami) ? null : 'whoami: every character must be visible'
}

const dirProblem = (dir: unknown): string | null => {
  if (!isText(dir) || !dir.startsWith('/')) return 'dir: expected the absolute path of the working directory'
  return dir.length > MAX_DIR ? `dir: more than ${MAX_DIR} characters` : null
}

const envsProblem = (envs: unknown): string | null => {
  if (!isTable(envs)) return 'envs: expected an object of texts, such as {"CI":"1"}'
  const entries = Object.entries(envs)
  if (entries.length > MAX_VARIABLES) return `envs: ${entries.length} variables; the maximum is ${MAX_VARIABLES}`
  for (const [name, value] of entries) {
    if (name === '' || name.includes('=') || !isText(name)) return `envs: ${named(name)} is not a variable name`
    if (!isText(value)) return `envs: ${named(name)} must be a Unicode text without NUL`
  }
  return null
}

const execProblem = (exec: unknown): string | null => {
  if (!Array.isArray(exec) || exec.length === 0) return 'exec: expected a list of texts, beginning with the program'
  if (exec.length > MAX_WORDS) return `exec: ${exec.length} words; the maximum is ${MAX_WORDS}`
  if (!exec.every(isText)) return 'exec: every word must be a Unicode text without NUL'
  return exec[0] === '' ? 'exec: the program name is empty' : null
}

/** The audit log line contains the arguments and the names of variables. */
const sizeProblem = (exec: readonly string[], envs: Readonly<Record<string, string>>): string | null => {
  const size = commandSize(exec, Object.keys({ ...envs, REXEC_WHOAMI: '' }))
  return size <= MAX_COMMAND_JSON
    ? null
    : `exec: ${size} bytes as JSON, including the names of envs; the maximum is ${MAX_COMMAND_JSON}; send long data by stdin`
}

const stdinProblem = (stdin: unknown): string | null => {
  if (stdin === undefined) return null
  if (!isUnicode(stdin)) return 'stdin: must be a Unicode text'
  return new TextEncoder().encode(stdin).length > MAX_CONSOLE_STDIN ? `stdin: more than ${MAX_CONSOLE_STDIN} bytes` : null
}

const timeoutProblem = (timeout: unknown): string | null =>
  timeout === undefined || (typeof timeout === 'number' && timeout >= 0 && timeout <= MAX_TIMEOUT_S)
    ? null
    : `timeout: expected seconds from 0 (no timeout) to ${MAX_TIMEOUT_S}`

const wishProblem = (value: Fields): string | null => {
  for (const [name, choices] of Object.entries<readonly string[]>(WISHES)) {
    const given = value[name]
    if (given !== undefined && !choices.some((one) => one === given)) return `${name}: expected one of ${choices.join(', ')}`
  }
  return null
}

const readRequest = (value: Fields): ConsoleMessage => {
  const { whoami, dir, envs = {}, exec, stdin, timeout, clear_env = false } = value
  const unknown = Object.keys(value).find((name) => !REQUEST_FIELDS.includes(name))
  const problem =
    (unknown === undefined ? null : `${named(unknown)} is not a field of a request`) ??
    whoamiProblem(whoami) ??
    dirProblem(dir) ??
    envsProblem(envs) ??
    execProblem(exec) ??
    sizeProblem(exec as string[], envs as Record<string, string>) ??
    stdinProblem(stdin) ??
    timeoutProblem(timeout) ??
    (typeof clear_env === 'boolean' ? null : 'clear_env: expected true or false') ??
    wishProblem(value)
  if (problem !== null) return bad(problem)
  const seconds = Number(timeout ?? 0)
  const timeout_ms = seconds === 0 ? null : Math.max(1, Math.round(seconds * 1000))
  const { host, security, ask } = value as Partial<ExecPreference>
  const wish = preferenceOf({ host, security, ask })
  const request = { whoami, dir, envs, exec, stdin: stdin ?? null, timeout_ms, clear_env, ...(wish && { wish }) } as ConsoleRequest
  return { kind: 'request', request }
}

const readAction = (value: Fields): ConsoleMessage => {
  const { action, ansi = false } = value
  const fields = action === 'attach' ? ATTACH_FIELDS : ['action']
  const unknown = Object.keys(value).find((name) => !fields.includes(name))
  if (unknown !== undefined) return bad(`${named(unknown)} is not a field of this action`)
  if (action === 'ping') return { kind: 'ping' }
  if (action === 'abort') return { kind: 'abort' }
  if (action !== 'attach') return bad('action: expected ping, abort or attach')
  return typeof ansi === 'boolean' ? { kind: 'attach', ansi } : bad('ansi: expected true or false')
}

/** Parses one line of a client. Never throws. */
export const readConsoleLine = (line: Uint8Array): ConsoleMessage => {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(line))
  } catch {
    return bad('it is not JSON in UTF-8')
  }
  if (!isTable(value)) return bad('it is not an object')
  // Null means that the field is absent.
  const fields = Object.fromEntries(Object.entries(value).filter(([, one]) => one !== null))
  return Object.hasOwn(fields, 'action') ? readAction(fields) : readRequest(fields)
}

/** A line of the console, with its line feed. */
export const consoleLine = (value: object): string => `${jsonText(value)}\n`

export const PONG = { result: 'pong' } as const

export const refusalOf = (message: string): ConsoleReply => ({ exit: 127, output: '', error: 'refused', message })
