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

/** What one message carries of a file, where the session may have that much: half of what the server takes. */
const FILE_CHUNK = 1024 * 1024
/** What `run` collects of each stream unless told. */
const MAX_COLLECTED = 64 * 1024 * 1024

export interface RunOptions extends ExecOptions {
  /** Bytes of each stream that are too many; 64 MiB unless told. */
  readonly maxCollected?: number
}

export interface SessionInit {
  readonly opened: Result<'session.open'>
  /** Where its commands and relative paths begin; null: at its first root. */
  readonly cwd: string | null
}

/** How a session stands; limits have the names of the protocol. */
export type SessionState = CamelCase<Omit<SessionInfo, 'limits'>> & Pick<SessionInfo, 'limits'>

/**
 * What the server keeps for one client: what it may do, and what it has running. It ends with its connection, unless it is
 * `resumable`: then the client makes the connection again and goes on with it where it was. What was asked and not answered
 * when the connection broke rejects with `RexdDisconnected` and `sent`, but for what only reads or waits, which is asked
 * again. When it cannot be gone on with, everything of it rejects with one `RexdDisconnected`.
 */
export class RexdSession {
  readonly id: string
  readonly serverVersion: string
  /** What it may do, as `exec` and `fs.write`. */
  readonly capabilities: Result<'session.open'>['capabilities']
  /** In force, under the names that they have in the protocol. */
  readonly limits: Result<'session.open'>['limits']
  readonly workspaceRoots: readonly string[]
  /** The agent of the mesh that its commands run on; null: they run on the server. */
  readonly target: string | null
  readonly cwd: string | null
  /** It outlives a connection that is lost, for as many milliseconds; null: it does not. */
  readonly resumeWindowMs: number | null
  /** The server tells that a human is asked about a start (`onWaiting`); one that does not would refuse to be asked for it. */
  readonly tellsWaiting: boolean
  readonly files: RemoteFiles
  readonly #connection: Connection
  readonly #link: SessionLink
  readonly #records = new Set<ProcessRecord>()
  /** Null: nobody has asked for them. */
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

  /** It was closed, or lost with its connection: nothing can be asked of it any more. */
  get ended(): boolean {
    return this.#closing !== null || this.#link.loss !== null
  }

  /** Starts a program; resolves when it runs. Aborting before that rejects; afterwards it ends the program, with SIGTERM and then SIGKILL. */
  async exec(command: Command, options: ExecOptions = {}): Promise<RemoteProcess> {
    return new RemoteProcess(await this.#start(command, options))
  }

  /**
   * Runs a program to its end and collects what it writes. Rejects with a `RangeError`, and ends the program, when that is
   * too much; and with an `OutputCut`, which has the result, when the server cut output off that no `maxOutputBytes` named.
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

  /** Starts a program on a terminal of its own, which the server must allow. Aborting is as with `exec`. */
  async openTerminal(command: Command, options: TerminalOptions = {}): Promise<RemoteTerminal> {
    const params = terminalParams(this.id, command, { ...options, cwd: this.#directory(options.cwd) })
    const opened = (result: unknown): ProcessRecord => this.#record(result, resultOf(result, 'pty.open', ['pty_id']).pty_id)
    return new RemoteTerminal(await this.#begin('pty.open', params, options, opened))
  }

  /**
   * What becomes of its programs from the first call of this on: that they began, wait for a human, ended with how much of
   * their output, or were denied. Take it when an agent has its next turn. Programs of `client.call` are not among them.
   */
  events(): SessionEvents {
    this.#events ??= new SessionEventHistory({ session: this.id })
    return this.#events
  }

  /** How it stands, and its processes. */
  async info({ signal }: CallOptions = {}): Promise<SessionState> {
    const accept = (result: unknown): SessionState => {
      const { limits, ...info } = resultOf(result, 'session.info', ['session_id', 'processes'])
      return { ...camelCase(info), limits }
    }
    return this.#connection.request({ method: 'session.info', params: { session_id: this.id }, scope: this.#link, signal, accept })
  }

  /** Ends it and every process of it that is not detached; answers how many those were. What any of them still writes is not looked at. */
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

  /** Asks for a program. Aborting takes back what somebody is asked about it, and ends one that has begun all the same. */
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
      // In a microtask of its own: what it throws must not reach the connection.
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

  /** Where a program runs: with the directory of the session before it, where that has one. */
  #directory(cwd = this.cwd ?? undefined): string | undefined {
    return cwd === undefined || this.cwd === null || posix.isAbsolute(cwd) ? cwd : posix.join(this.cwd, cwd)
  }

  /** From here on its events are heard. */
  #record(result: unknown, ptyId: string | null): ProcessRecord {
    const started = resultOf(result, 'exec.start', ['process_id', 'started_at'])
    const record = new ProcessRecord({ connection: this.#connection, link: this.#link }, { ...started, pty_id: ptyId })
    this.#records.add(record)
    whenAborted(record.gone, () => this.#records.delete(record))
    return record
  }

  /** From here on its caller may end it. */
  #watched(record: ProcessRecord, signal: AbortSignal | undefined): ProgramComponents {
    const connection = this.#connection
    whenAborted(
      record.over,
      whenAborted(signal, (reason) => record.abandon(reason)),
    )
    return { connection, record, input: new ProcessInput({ connection, record }) }
  }
}
