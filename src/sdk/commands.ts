import type { Params } from '../protocol/rexd/methods.ts'
import { toBase64 } from '../protocol/text.ts'
import { type DataSource, toText, wholeOf } from './data.ts'
import { present } from './fields.ts'
import type { ClampedPreference, RunPlacement, ProcessExit, RanOn } from './process-record.ts'
import type { CallOptions } from './promises.ts'

/** Stdin up to this size is sent with the command, which saves a round trip. */
const MAX_STDIN_WITH_START = 256 * 1024

/** A program and its arguments, or a text for the server's `/bin/sh`, which the server must allow. */
export type Command = readonly string[] | { readonly shell: string }

/** Host and approval of a program, if the server's `[tools.exec]` lets clients choose. A wider preference is cut (`cutWishes`). */
export interface PlaceOptions {
  readonly host?: Params<'exec.start'>['host']
  /** ID, name or address of an agent of the mesh, if `host` is node. */
  readonly node?: string
  readonly security?: Params<'exec.start'>['security']
  readonly ask?: Params<'exec.start'>['ask']
  /**
   * Called when an approver is asked about the start, with the milliseconds to decide. No answer is a denial. It may be called for
   * approvers of the server's host and again for those of the target agent. Some servers do not report it.
   */
  readonly onWaiting?: (waiting: StartWaiting) => void
}

export interface StartWaiting {
  /** ID as in `x0x approvals pending`, or null if the target agent asks and does not tell. */
  readonly questionId: string | null
  readonly expiresInMs: number
}

/** Options of programs on pipes and on terminals. */
interface ProgramOptions extends CallOptions, PlaceOptions {
  /** Working directory, by default that of the session. A relative path starts at it. */
  readonly cwd?: string | undefined
  /** Variables in addition to those of the server, such as `TERM` on a terminal. The server must allow each. */
  readonly env?: Readonly<Record<string, string>>
  /** Milliseconds, by default those of the session. On a terminal the default is the session's maximum. */
  readonly timeoutMs?: number
  /** Limit on the output of both streams in bytes, by default that of the session. The rest is cut off. */
  readonly maxOutputBytes?: number
}

export interface ExecOptions extends ProgramOptions {
  /** A value, or a source read as fast as the program reads. By default stdin is empty. A failing source ends the program. */
  readonly stdin?: DataSource
  /** Keeps its stdin open for `write` after `stdin`. */
  readonly stdinOpen?: boolean
  /** End the program above the output limit. Then `exited` rejects with `output_limit_exceeded`. */
  readonly failOnLimit?: boolean
  /** Let it outlive the session, if the server allows that. */
  readonly detach?: boolean
}

export interface TerminalOptions extends ProgramOptions {
  /** Columns. Default: 80. */
  readonly cols?: number
  /** Lines. Default: 24. */
  readonly rows?: number
}

/** The start request of a command, and the rest of its stdin. */
export interface StartRequest {
  readonly params: Params<'exec.start'>
  readonly feed: { readonly source: DataSource; readonly end: boolean } | null
}

/** A short stdin is sent with the command. The server does not count it as buffered input, so no other input may follow. */
const inlineOf = (stdin: DataSource | undefined, open: boolean): Uint8Array | undefined => {
  const whole = stdin === undefined || open ? null : wholeOf(stdin)
  return whole !== null && whole.length <= MAX_STDIN_WITH_START ? whole : undefined
}

const commandOf = (command: Command): Pick<Params<'exec.start'>, 'argv' | 'command' | 'shell'> => {
  // Checks what the compiler checks for typed callers.
  if (typeof command !== 'object') throw new TypeError("command: a list of tokens, as ['ls', '-l'], or { shell: 'ls -l' }")
  const shell = 'shell' in command
  return shell ? { command: command.shell, shell } : { argv: command }
}

const programOf = (session_id: string, command: Command, options: ProgramOptions) => {
  const { cwd, env, timeoutMs: timeout_ms, maxOutputBytes: max_output_bytes, host, node, security, ask } = options
  return { session_id, ...commandOf(command), cwd, env, timeout_ms, max_output_bytes, host, node, security, ask }
}

/** The start request of a program on a terminal. */
export const terminalParams = (sessionId: string, command: Command, options: TerminalOptions): Params<'pty.open'> => {
  const { cols, rows } = options
  return present<Params<'pty.open'>>({ ...programOf(sessionId, command, options), cols, rows })
}

export const startParams = (sessionId: string, command: Command, options: ExecOptions): StartRequest => {
  const { stdin, stdinOpen = false, failOnLimit, detach } = options
  const inline = inlineOf(stdin, stdinOpen)
  const feed = stdin === undefined || inline !== undefined ? null : { source: stdin, end: !stdinOpen }
  const params = present<Params<'exec.start'>>({
    ...programOf(sessionId, command, options),
    stdin: inline && toBase64(inline),
    stdin_encoding: inline && 'base64',
    stdin_open: stdinOpen || feed !== null || undefined,
    fail_on_limit: failOnLimit,
    detach,
  })
  return { params, feed }
}

/** The end of a program with its output. Every exit code is a result and not an error. */
export class RunResult implements ProcessExit, RunPlacement {
  /** Null if a signal ended it. */
  readonly exitCode: number | null
  /** The signal that ended it, such as `SIGTERM`. */
  readonly signal: string | null
  readonly timedOut: boolean
  readonly durationMs: number
  /** Whether output was cut off or it timed out. */
  readonly truncated: boolean
  /** Bytes that it wrote, also if they were cut off. */
  readonly bytesStdout: number
  readonly bytesStderr: number
  /** Processes that it left running, which were ended with it. */
  readonly descendantsEnded: number
  readonly stdout: Uint8Array
  readonly stderr: Uint8Array
  readonly ranOn: RanOn | null
  readonly cutWishes: readonly ClampedPreference[]

  constructor(exit: ProcessExit, output: { readonly stdout: Uint8Array; readonly stderr: Uint8Array }, place: RunPlacement) {
    this.exitCode = exit.exitCode
    this.signal = exit.signal
    this.timedOut = exit.timedOut
    this.durationMs = exit.durationMs
    this.truncated = exit.truncated
    this.bytesStdout = exit.bytesStdout
    this.bytesStderr = exit.bytesStderr
    this.descendantsEnded = exit.descendantsEnded ?? 0
    this.stdout = output.stdout
    this.stderr = output.stderr
    this.ranOn = place.ranOn
    this.cutWishes = place.cutWishes
  }

  /** As UTF-8. Invalid bytes become U+FFFD. */
  get stdoutText(): string {
    return toText(this.stdout)
  }

  get stderrText(): string {
    return toText(this.stderr)
  }
}

/** Whether output is missing. */
export const isCut = ({ stdout, stderr, bytesStdout, bytesStderr }: RunResult): boolean =>
  stdout.length < bytesStdout || stderr.length < bytesStderr

/** The server cut off output at a limit that the caller had not set. */
export class OutputCut extends Error {
  override readonly name = 'OutputCut'
  /** The end of the program, and the output that arrived. */
  readonly result: RunResult

  constructor(result: RunResult) {
    const here = result.stdout.length + result.stderr.length
    const all = result.bytesStdout + result.bytesStderr
    super(`${here} of ${all} bytes of output arrived, because the session forwards no more; set maxOutputBytes if less is enough`)
    this.result = result
  }
}
