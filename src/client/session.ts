import { posix } from 'node:path'

import type { Result, SessionInfo } from '../protocol/rexd-answers.ts'
import {
  isCut,
  OutputCut,
  RunResult,
  startParams,
  terminalParams,
  type Command,
  type ExecOptions,
  type Starting,
  type TerminalOptions,
  waitingFor,
} from './commands.ts'
import type { Connection } from './connection.ts'
import { RexdDisconnected } from './errors.ts'
import { camelCase, type CamelCase } from './fields.ts'
import { resultOf } from './incoming.ts'
import { ProcessInput } from './process-input.ts'
import { ProcessRecord } from './process-record.ts'
import { orAborted, whenAborted, type CallOptions } from './promises.ts'
import { RemoteFiles } from './remote-files.ts'
import { RemoteProcess, RemoteTerminal, type ProgramComponents } from './remote-process.ts'
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

interface Started {
  readonly process: RemoteProcess
  readonly record: ProcessRecord
}

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
  readonly files: RemoteFiles
  readonly #connection: Connection
  readonly #link: SessionLink
  readonly #records = new Set<ProcessRecord>()
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
    const readChunk = Math.min(FILE_CHUNK, opened.limits['max_file_read_bytes'] ?? FILE_CHUNK)
    this.files = new RemoteFiles(components, { cwd, readChunk, writeChunk: FILE_CHUNK })
  }

  /** It was closed, or lost with its connection: nothing can be asked of it any more. */
  get ended(): boolean {
    return this.#closing !== null || this.#link.loss !== null
  }

  /** Starts a program; resolves when it runs. Aborting before that rejects; afterwards it ends the program, with SIGTERM and then SIGKILL. */
  async exec(command: Command, options: ExecOptions = {}): Promise<RemoteProcess> {
    return (await this.#start(command, options)).process
  }

  /**
   * Runs a program to its end and collects what it writes. Rejects with a `RangeError`, and ends the program, when that is
   * too much; and with an `OutputCut`, which has the result, when the server cut output off that no `maxOutputBytes` named.
   */
  async run(command: Command, { maxCollected = MAX_COLLECTED, ...options }: RunOptions = {}): Promise<RunResult> {
    const { process, record } = await this.#start(command, options)
    const { stdout, stderr, exited } = process
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
    const { signal } = options
    const opened = (result: unknown): { record: ProcessRecord; ptyId: string } => {
      const { pty_id: ptyId } = resultOf(result, 'pty.open', ['pty_id'])
      return { record: this.#record(result, ptyId), ptyId }
    }
    return this.#connection.request({
      method: 'pty.open',
      params: terminalParams(this.id, command, { ...options, cwd: this.#directory(options.cwd) }),
      scope: this.#link,
      signal,
      accept: (result) => {
        const { record, ptyId } = opened(result)
        return new RemoteTerminal(this.#watched(record, signal), { ptyId })
      },
      late: (result) => opened(result).record.abandon(signal?.reason),
      waiting: waitingFor(options),
    })
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

  async #start(command: Command, options: ExecOptions): Promise<Started> {
    const { signal } = options
    const { params, feed } = startParams(this.id, command, { ...options, cwd: this.#directory(options.cwd) })
    return this.#connection.request({
      method: 'exec.start',
      params,
      scope: this.#link,
      signal,
      accept: (result) => this.#started(this.#record(result, null), feed, signal),
      late: (result) => this.#record(result, null).abandon(signal?.reason),
      waiting: waitingFor(options),
    })
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

  #started(record: ProcessRecord, feed: Starting['feed'], signal: AbortSignal | undefined): Started {
    const components = this.#watched(record, signal)
    if (feed !== null) components.input.feed(feed.source, feed).catch((error: unknown) => record.abandon(error))
    return { process: new RemoteProcess(components), record }
  }
}
