import { isVisible } from '../../base/visible-text.ts'
import { type RanOnJson, type ExecPreference, preferenceOf } from '../api/exec-target.ts'
import { commandSize } from '../api/rules.ts'
import { ASKS, HOSTS, SECURITIES } from '../desk/approval-request.ts'
import { type Fields, isTable } from '../json-table.ts'
import { MAX_COMMAND_JSON } from '../limits/daemon.ts'
import { jsonText } from '../lines.ts'

/**
 * The protocol of the console (docs/console.md): one JSON object a line. Sizes are bytes, times are milliseconds; each with its reason.
 */

/** One line: stdin of MAX_CONSOLE_STDIN and a command line with its environment, however JSON writes them (6 bytes for one). */
export const MAX_CONSOLE_LINE = 8 * 1024 * 1024
/** stdin of a command, UTF-8. */
export const MAX_CONSOLE_STDIN = 1024 * 1024
/** Who asks: it stands in a banner, in every line of the journal, and in the name of a file. */
export const MAX_WHOAMI = 64
/** A path: what Linux takes. */
const MAX_DIR = 4_096
const MAX_WORDS = 32_768
const MAX_VARIABLES = 1_024
/** Of a week; a longer one is a mistake. */
const MAX_TIMEOUT_S = 604_800
/** The terminal that each command has: columns and rows. */
export const CONSOLE_TERMINAL = { cols: 80, rows: 24 } as const
/** Connections at once; of more, each is told so and closed. */
export const MAX_CONSOLE_CONNECTIONS = 128
/** Connections of these that are told of commands as they end: each may leave some of that unread. */
export const MAX_CONSOLE_ATTACHED = 16
/** Commands that run at once; others wait for their turn. */
export const MAX_CONSOLE_RUNS = 64
/** From the connect, or from the first byte of a line, to its end. */
export const CONSOLE_LINE_MS = 10_000
/** How long a connection that has been used may rest. */
export const CONSOLE_REST_MS = 600_000
/** How long a reply may be on its way. */
export const CONSOLE_REPLY_MS = 30_000
/** How long the reply to a command may wait until its entry of the transcript was written; a disk that hangs is not to stop agents. */
export const TRANSCRIPT_WAIT_MS = 2_000
/** From SIGTERM to SIGKILL. */
export const CONSOLE_GRACE_MS = 200

/** What a command's client asks for. */
export interface ConsoleRequest {
  readonly whoami: string
  /** Absolute. */
  readonly dir: string
  readonly envs: Readonly<Record<string, string>>
  readonly exec: readonly string[]
  /** Null: /dev/null. */
  readonly stdin: string | null
  /** Milliseconds; null: none. */
  readonly timeout_ms: number | null
  /** Nothing of the host's environment. */
  readonly clear_env: boolean
  /** Absent: its client leaves where it runs, and who is asked, to the configuration. */
  readonly wish?: ExecPreference
}

export type ConsoleMessage =
  | { readonly kind: 'request'; readonly request: ConsoleRequest }
  | { readonly kind: 'ping' }
  | { readonly kind: 'abort' }
  | { readonly kind: 'attach'; readonly ansi: boolean }
  /** `problem` says what is wrong with the line. */
  | { readonly kind: 'bad'; readonly problem: string }

/** Why a command did not end by itself; `refused`: the line was none that can be served. */
export type ConsoleError = 'not_found' | 'spawn_failed' | 'aborted' | 'timeout' | 'refused'

export interface ConsoleReply {
  readonly exit: number
  readonly output: string
  readonly error?: ConsoleError
  /** For a human: what is behind `error`. */
  readonly message?: string
  /** Where it ran; absent: it did not, or the console does not choose among hosts. */
  readonly ran_on?: RanOnJson
  /** Processes that the command left running and that were ended with it; absent: there were none. */
  readonly descendants_ended?: number
}

const REQUEST_FIELDS = ['whoami', 'dir', 'envs', 'exec', 'stdin', 'timeout', 'clear_env', 'host', 'security', 'ask']
/** What a console has of `ExecPreference`: none of its commands, which have a terminal, goes to an agent of the mesh. */
const WISHES = { host: HOSTS.filter((host) => host !== 'node'), security: SECURITIES, ask: ASKS }
const ATTACH_FIELDS = ['action', 'ansi']

/** Of a name that a client made up: what is wrong is said, and not all of it sent back. */
const named = (name: string): string => JSON.stringify(name.slice(0, 64))

const bad = (problem: string): ConsoleMessage => ({ kind: 'bad', problem })

/** JSON can escape half a surrogate pair, for which a program would be given another text. */
const isUnicode = (value: unknown): value is string => typeof value === 'string' && value.isWellFormed()
const isText = (value: unknown): value is string => isUnicode(value) && !value.includes('\0')

/** Why it is no name of an agent, whichever program reads it; null: it is one. */
export const whoamiProblem = (whoami: unknown): string | null => {
  if (typeof whoami !== 'string' || whoami.trim() === '') return 'whoami: the name of who asks, such as "Codex"'
  const length = new TextEncoder().encode(whoami).length
  if (length > MAX_WHOAMI) return `whoami: ${length} bytes, where ${MAX_WHOAMI} are allowed`
  // What does not show itself could be taken for another name.
  return isVisible(whoami) ? null : 'whoami: every character of it must be visible'
}

const dirProblem = (dir: unknown): string | null => {
  if (!isText(dir) || !dir.startsWith('/')) return 'dir: the absolute path of the directory in which the command runs'
  return dir.length > MAX_DIR ? `dir: more than ${MAX_DIR} characters` : null
}

const envsProblem = (envs: unknown): string | null => {
  if (!isTable(envs)) return 'envs: an object of texts, such as {"CI":"1"}'
  const entries = Object.entries(envs)
  if (entries.length > MAX_VARIABLES) return `envs: ${entries.length} variables, where ${MAX_VARIABLES} are allowed`
  for (const [name, value] of entries) {
    if (name === '' || name.includes('=') || !isText(name)) return `envs: ${named(name)} is no name of a variable`
    if (!isText(value)) return `envs: ${named(name)} must be a Unicode text without NUL`
  }
  return null
}

const execProblem = (exec: unknown): string | null => {
  if (!Array.isArray(exec) || exec.length === 0) return 'exec: a list of texts, the program first'
  if (exec.length > MAX_WORDS) return `exec: ${exec.length} words, where ${MAX_WORDS} are allowed`
  if (!exec.every(isText)) return 'exec: every word must be a Unicode text without NUL'
  return exec[0] === '' ? 'exec: the program has no name' : null
}

/** Its line of the journal has the words and the names of the variables, that of the agent among them. */
const sizeProblem = (exec: readonly string[], envs: Readonly<Record<string, string>>): string | null => {
  const size = commandSize(exec, Object.keys({ ...envs, REXEC_WHOAMI: '' }))
  return size <= MAX_COMMAND_JSON
    ? null
    : `exec: with the names of envs ${size} bytes as JSON, where ${MAX_COMMAND_JSON} are allowed; give more by stdin`
}

const stdinProblem = (stdin: unknown): string | null => {
  if (stdin === undefined) return null
  if (!isUnicode(stdin)) return 'stdin: must be a Unicode text'
  return new TextEncoder().encode(stdin).length > MAX_CONSOLE_STDIN ? `stdin: more than ${MAX_CONSOLE_STDIN} bytes` : null
}

const timeoutProblem = (timeout: unknown): string | null =>
  timeout === undefined || (typeof timeout === 'number' && timeout >= 0 && timeout <= MAX_TIMEOUT_S)
    ? null
    : `timeout: seconds from 0, which is none, to ${MAX_TIMEOUT_S}`

const wishProblem = (value: Fields): string | null => {
  for (const [name, choices] of Object.entries<readonly string[]>(WISHES)) {
    const given = value[name]
    if (given !== undefined && !choices.some((one) => one === given)) return `${name}: one of ${choices.join(', ')}`
  }
  return null
}

const readRequest = (value: Fields): ConsoleMessage => {
  const { whoami, dir, envs = {}, exec, stdin, timeout, clear_env = false } = value
  const unknown = Object.keys(value).find((name) => !REQUEST_FIELDS.includes(name))
  const problem =
    (unknown === undefined ? null : `${named(unknown)} is no field of a request`) ??
    whoamiProblem(whoami) ??
    dirProblem(dir) ??
    envsProblem(envs) ??
    execProblem(exec) ??
    sizeProblem(exec as string[], envs as Record<string, string>) ??
    stdinProblem(stdin) ??
    timeoutProblem(timeout) ??
    (typeof clear_env === 'boolean' ? null : 'clear_env: true or false') ??
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
  if (unknown !== undefined) return bad(`${named(unknown)} is no field of this action`)
  if (action === 'ping') return { kind: 'ping' }
  if (action === 'abort') return { kind: 'abort' }
  if (action !== 'attach') return bad('action: ping, abort or attach')
  return typeof ansi === 'boolean' ? { kind: 'attach', ansi } : bad('ansi: true or false')
}

/** Reads one line that a client wrote. Never throws. */
export const readConsoleLine = (line: Uint8Array): ConsoleMessage => {
  let value: unknown
  try {
    value = JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(line))
  } catch {
    return bad('it is no JSON in UTF-8')
  }
  if (!isTable(value)) return bad('it is no object')
  // Null means that the field is absent.
  const fields = Object.fromEntries(Object.entries(value).filter(([, one]) => one !== null))
  return Object.hasOwn(fields, 'action') ? readAction(fields) : readRequest(fields)
}

/** A line of the host, with its end. */
export const consoleLine = (value: object): string => `${jsonText(value)}\n`

export const PONG = { result: 'pong' } as const

/** The reply to what is not run. */
export const refusalOf = (message: string): ConsoleReply => ({ exit: 127, output: '', error: 'refused', message })
