import type { Params } from '../protocol/rexd/methods.ts'
import { toBase64 } from '../protocol/text.ts'
import { type DataSource, toText, wholeOf } from './data.ts'
import { present } from './fields.ts'
import type { ClampedPreference, RunPlacement, ProcessExit, RanOn } from './process-record.ts'
import type { CallOptions } from './promises.ts'

/** Up to here stdin goes with the command, which saves the way there and back. */
const MAX_STDIN_WITH_START = 256 * 1024

/** A program and its arguments; or a text for the server's `/bin/sh`, which the server must allow. */
export type Command = readonly string[] | { readonly shell: string }

/** Where a program runs and whom it asks, where the server's `[tools.exec]` lets callers choose; what is wider than that is cut (`cutWishes`). */
export interface PlaceOptions {
  readonly host?: Params<'exec.start'>['host']
  /** With `host` node: the id, name or address of an agent of the mesh. */
  readonly node?: string
  readonly security?: Params<'exec.start'>['security']
  readonly ask?: Params<'exec.start'>['ask']
  /**
   * Called when a human is asked whether it may begin, with the milliseconds that he has; no answer is a denial. Once for
   * one of the server's host, and once for those of the agent that it is to run on. Never by a server that does not tell.
   */
  readonly onWaiting?: (waiting: StartWaiting) => void
}

export interface StartWaiting {
  /** As `x0x approvals pending` shows it; null: the agent that it is to run on asks, and does not say. */
  readonly questionId: string | null
  readonly expiresInMs: number
}

/** What programs on pipes and on terminals are started with. */
interface ProgramOptions extends CallOptions, PlaceOptions {
  /** Where it runs; where the session's commands run unless told. A relative path begins there too. */
  readonly cwd?: string | undefined
  /** Variables beside those that the server sets, as `TERM` on a terminal; the server must allow each. */
  readonly env?: Readonly<Record<string, string>>
  /** Milliseconds; what the session has as default unless told, and on a terminal the longest that it has. */
  readonly timeoutMs?: number
  /** Bytes of all its output together; the rest is cut off. What the session has as default unless told. */
  readonly maxOutputBytes?: number
}

export interface ExecOptions extends ProgramOptions {
  /** What it reads: all at once or as it comes, at the program's own speed. Nothing unless told. A source that fails ends the program. */
  readonly stdin?: DataSource
  /** Its stdin stays open for `write`, behind what `stdin` has. */
  readonly stdinOpen?: boolean
  /** More output than that ends it, and `exited` rejects with `output_limit_exceeded`. */
  readonly failOnLimit?: boolean
  /** It outlives the session, where the server lets it. */
  readonly detach?: boolean
}

export interface TerminalOptions extends ProgramOptions {
  /** Characters in a line; 80 unless told. */
  readonly cols?: number
  /** Lines; 24 unless told. */
  readonly rows?: number
}

/** What a command is started with, and what is written to its stdin afterwards. */
export interface StartRequest {
  readonly params: Params<'exec.start'>
  readonly feed: { readonly source: DataSource; readonly end: boolean } | null
}

/** A little stdin goes with the command; the server does not count that against what it takes ahead, so nothing may follow it. */
const inlineOf = (stdin: DataSource | undefined, open: boolean): Uint8Array | undefined => {
  const whole = stdin === undefined || open ? null : wholeOf(stdin)
  return whole !== null && whole.length <= MAX_STDIN_WITH_START ? whole : undefined
}

const commandOf = (command: Command): Pick<Params<'exec.start'>, 'argv' | 'command' | 'shell'> => {
  // What the compiler would have said.
  if (typeof command !== 'object') throw new TypeError("command: a list of tokens, as ['ls', '-l'], or { shell: 'ls -l' }")
  const shell = 'shell' in command
  return shell ? { command: command.shell, shell } : { argv: command }
}

const programOf = (session_id: string, command: Command, options: ProgramOptions) => {
  const { cwd, env, timeoutMs: timeout_ms, maxOutputBytes: max_output_bytes, host, node, security, ask } = options
  return { session_id, ...commandOf(command), cwd, env, timeout_ms, max_output_bytes, host, node, security, ask }
}

/** What a program on a terminal is started with. */
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

/** How a program ended, and all that it wrote. Any exit code is a result, none is an error. */
export class RunResult implements ProcessExit, RunPlacement {
  /** Null when a signal ended it. */
  readonly exitCode: number | null
  /** The signal that ended it, as `SIGTERM`. */
  readonly signal: string | null
  readonly timedOut: boolean
  readonly durationMs: number
  /** Output was cut off, or its time was up. */
  readonly truncated: boolean
  /** What it wrote, whether it is here or not. */
  readonly bytesStdout: number
  readonly bytesStderr: number
  /** Processes that it left running and that were ended with it. */
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

  /** As UTF-8; what is none becomes U+FFFD. */
  get stdoutText(): string {
    return toText(this.stdout)
  }

  get stderrText(): string {
    return toText(this.stderr)
  }
}

/** Less is here than was written. */
export const isCut = ({ stdout, stderr, bytesStdout, bytesStderr }: RunResult): boolean =>
  stdout.length < bytesStdout || stderr.length < bytesStderr

/** The server has cut off what a program wrote, at a limit that its caller did not ask for. */
export class OutputCut extends Error {
  override readonly name = 'OutputCut'
  /** How it ended, and what is here of its output. */
  readonly result: RunResult

  constructor(result: RunResult) {
    const here = result.stdout.length + result.stderr.length
    const all = result.bytesStdout + result.bytesStderr
    super(`of ${all} bytes of output ${here} came: the session passes on no more; say maxOutputBytes where less is meant to be enough`)
    this.result = result
  }
}
