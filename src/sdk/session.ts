import { posix } from 'node:path'
import type { Params } from '../protocol/rexd/methods.ts'
import type { EventParams, Result, SessionInfo } from '../protocol/rexd/results.ts'
import {
  type Command,
  type ExecOptions,
  OutputCut,
  type PlaceOptions,
  RunResult,
  type TerminalOptions,
  isCut,
  startParams,
  terminalParams,
} from './commands.ts'
import type { Connection } from './connection.ts'
import { RexdDisconnected } from './errors.ts'
import { type CamelCase, camelCase } from './fields.ts'
import { resultOf } from './incoming.ts'
import { ProcessRecord, killProcess } from './process-record.ts'
import { type CallOptions, orAborted, whenAborted } from './promises.ts'
import { RemoteFiles } from './remote-files.ts'
import { ProcessInput, type ProgramComponents, RemoteProcess, RemoteTerminal } from './remote-process.ts'
import { SessionEventHistory, type SessionEvents } from './session-events.ts'
import type { SessionLink } from './session-link.ts'

/** Bytes of a file in one message, if the session allows. The server's maximum is twice this. */
const FILE_CHUNK = 1024 * 1024
/** Default limit of each stream of `run`. */
const MAX_COLLECTED = 64 * 1024 * 1024

export interface RunOptions extends ExecOptions {
  /** Limit in bytes of each stream, by default 64 MiB. */
  readonly maxCollected?: number
}

export interface SessionInit {
  readonly opened: Result<'session.open'>
  /** Working directory of its commands and start of relative paths, or null for its first root. */
  readonly cwd: string | null
}

/** State of a session. Limits have the names of the protocol. */
export type SessionState = CamelCase<Omit<SessionInfo, 'limits'>> & Pick<SessionInfo, 'limits'>

/**
 * A client's session on a server, with its programs and files. It ends with its connection unless it is `resumable`. Then the client
 * reconnects and resumes it. Calls that were sent and not answered reject with `RexdDisconnected` and `sent`, except those that only read
 * or wait, which are repeated. If the session cannot be resumed, all its calls and programs reject with one `RexdDisconnected`.
 */
export class RexdSession {
  readonly id: string
  readonly serverVersion: string
  /** Granted capabilities, such as `exec` and `fs.write`. */
  readonly capabilities: Result<'session.open'>['capabilities']
  /** Limits in force, under their names in the protocol. */
  readonly limits: Result<'session.open'>['limits']
  readonly workspaceRoots: readonly string[]
  /** The agent of the mesh that its commands run on, or null for the server. */
  readonly target: string | null
  readonly cwd: string | null
  /** Milliseconds that it survives a lost connection, or null if it does not. */
  readonly resumeWindowMs: number | null
  /** Whether the server reports that an approver is asked (`onWaiting`). A server that does not would reject the option. */
  readonly tellsWaiting: boolean
  readonly files: RemoteFiles
  readonly #connection: Connection
  readonly #link: SessionLink
  readonly #records = new Set<ProcessRecord>()
  /** Null until `events` is called. */
  #events: SessionEventHistory | null = null
  #closing: Promise<{ terminated: number }> | null = null

  constructor(components: { connection: Connection; link: SessionLink }, { opened, cwd }: SessionInit) {
    this.#connection = components.connection
    this.#link = components.link
    this.id = opened.session_id
    this.serverVersion = opened.server_version
    this.capabilities = opened.capabilities
    this.limits = opened.limits
    this.workspaceRoots = opened.workspace_roots
    this.target = opened.target ?? null
    this.resumeWindowMs = this.#link.lasting ? (opened.resume_window_ms ?? null) : null
    this.cwd = cwd
    this.tellsWaiting = opened.tells_waiting === true
    const readChunk = Math.min(FILE_CHUNK, opened.limits['max_file_read_bytes'] ?? FILE_CHUNK)
    this.files = new RemoteFiles(components, { cwd, readChunk, writeChunk: FILE_CHUNK })
  }

  /** Whether it was closed or lost, so that no call is possible. */
  get ended(): boolean {
    return this.#closing !== null || this.#link.loss !== null
  }

  /** Starts a program and resolves when it runs. Aborting before that rejects. Aborting later sends SIGTERM, then SIGKILL. */
  async exec(command: Command, options: ExecOptions = {}): Promise<RemoteProcess> {
    return new RemoteProcess(await this.#start(command, options))
  }

  /**
   * Runs a program to its end and collects its output. If there is too much, it rejects with a `RangeError` and ends the program. If the
   * server cut output off without a `maxOutputBytes`, it rejects with an `OutputCut`, which has the result.
   */
  async run(command: Command, { maxCollected = MAX_COLLECTED, ...options }: RunOptions = {}): Promise<RunResult> {
    const started = await this.#start(command, options)
    const { record } = started
    const { stdout, stderr, exited } = new RemoteProcess(started)
    try {
      const [out, err, exit] = await Promise.all([stdout.bytes(maxCollected), stderr.bytes(maxCollected), exited])
      const result = new RunResult(exit, { stdout: out, stderr: err }, record.place)
      if (options.maxOutputBytes === undefined && isCut(result)) throw new OutputCut(result)
      return result
    } catch (error) {
      record.abandon(error)
      throw error
    }
  }

  /** Starts a program on a terminal, which the server must allow. Aborting is as with `exec`. */
  async openTerminal(command: Command, options: TerminalOptions = {}): Promise<RemoteTerminal> {
    const params = terminalParams(this.id, command, { ...options, cwd: this.#directory(options.cwd) })
    const opened = (result: unknown): ProcessRecord => this.#record(result, resultOf(result, 'pty.open', ['pty_id']).pty_id)
    return new RemoteTerminal(await this.#begin('pty.open', params, options, opened))
  }

  /**
   * Events of its programs from the first call on. They report starts, waiting for an approver, ends with the size of the output, and
   * denials. Call `take` at the AI agent's next turn. Programs of `client.call` are not included.
   */
  events(): SessionEvents {
    this.#events ??= new SessionEventHistory({ session: this.id })
    return this.#events
  }

  /** Its state and processes. */
  async info({ signal }: CallOptions = {}): Promise<SessionState> {
    const accept = (result: unknown): SessionState => {
      const { limits, ...info } = resultOf(result, 'session.info', ['session_id', 'processes'])
      return { ...camelCase(info), limits }
    }
    return this.#connection.request({ method: 'session.info', params: { session_id: this.id }, scope: this.#link, signal, accept })
  }

  /** Ends it and its processes that are not detached, and returns their number. Further output is ignored. */
  async close(options: CallOptions = {}): Promise<{ terminated: number }> {
    this.#closing ??= this.#close()
    return orAborted(this.#closing, options.signal)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close().catch(() => undefined)
  }

  async #close(): Promise<{ terminated: number }> {
    const error = new RexdDisconnected('the session was closed', { sent: true })
    for (const record of this.#records) record.cut(error)
    const accept = (result: unknown): { terminated: number } => {
      const { terminated } = resultOf(result, 'session.close', ['terminated'])
      return { terminated }
    }
    try {
      return await this.#connection.request({ method: 'session.close', params: { session_id: this.id }, scope: this.#link, accept })
    } finally {
      this.#connection.unlink(this.#link, error)
    }
  }

  async #start(command: Command, options: ExecOptions): Promise<ProgramComponents> {
    const { params, feed } = startParams(this.id, command, { ...options, cwd: this.#directory(options.cwd) })
    const started = await this.#begin('exec.start', params, options, (result) => this.#record(result, null))
    const { record, input } = started
    if (feed !== null) input.feed(feed.source, feed).catch((error: unknown) => record.abandon(error))
    return started
  }

  /** Starts a program. Aborting withdraws the approval request, or ends the program if it started meanwhile. */
  async #begin<M extends 'exec.start' | 'pty.open'>(
    method: M,
    params: Params<M>,
    { signal, onWaiting, node }: CallOptions & PlaceOptions,
    record: (result: unknown) => ProcessRecord,
  ): Promise<ProgramComponents> {
    const connection = this.#connection
    const scope = this.#link
    const events = this.#events?.program(this.target ?? node)
    let release = (): void => undefined
    const waiting = (event: EventParams<'exec.waiting'>): void => {
      const { process_id, question_id, expires_in_ms } = event
      events?.waiting(event)
      release()
      release = whenAborted(signal, () => void killProcess({ connection, link: scope }, { process_id }).catch(() => undefined))
      // A separate microtask keeps an error in the callback from the connection.
      if (signal?.aborted !== true) queueMicrotask(() => onWaiting?.({ questionId: question_id, expiresInMs: expires_in_ms }))
    }
    const accept = (result: unknown): ProgramComponents => {
      const begun = record(result)
      events?.begun(begun)
      return this.#watched(begun, signal)
    }
    const late = (result: unknown): void => record(result).abandon(signal?.reason)
    const told = this.tellsWaiting ? { ...params, tell_waiting: true } : params
    const asked = connection.request({ method, params: told, scope, signal, accept, late, waiting })
    asked.catch((error: unknown) => events?.failed(error))
    return asked.finally(() => release())
  }

  /** Prepends the directory of the session, if it has one. */
  #directory(cwd = this.cwd ?? undefined): string | undefined {
    return cwd === undefined || this.cwd === null || posix.isAbsolute(cwd) ? cwd : posix.join(this.cwd, cwd)
  }

  /** Its events are handled from here on. */
  #record(result: unknown, ptyId: string | null): ProcessRecord {
    const started = resultOf(result, 'exec.start', ['process_id', 'started_at'])
    const record = new ProcessRecord({ connection: this.#connection, link: this.#link }, { ...started, pty_id: ptyId })
    this.#records.add(record)
    whenAborted(record.gone, () => this.#records.delete(record))
    return record
  }

  /** Its caller can end it from here on. */
  #watched(record: ProcessRecord, signal: AbortSignal | undefined): ProgramComponents {
    const connection = this.#connection
    whenAborted(
      record.over,
      whenAborted(signal, (reason) => record.abandon(reason)),
    )
    return { connection, record, input: new ProcessInput({ connection, record }) }
  }
}
