import type { CapabilityName } from '../protocol/rexd/fields.ts'
import type { Method, Params } from '../protocol/rexd/methods.ts'
import { PROTOCOL, type Result, type RexdEvent } from '../protocol/rexd/results.ts'
import { Backoff, type ReconnectOptions } from './backoff.ts'
import { Connection, type ConnectionState } from './connection.ts'
import { RexdProtocolError } from './errors.ts'
import { present } from './fields.ts'
import { fieldsOf, resultOf } from './incoming.ts'
import type { CallOptions } from './promises.ts'
import { RexdSession } from './session.ts'
import type { TransportFactory } from './transport.ts'

export interface ConnectOptions extends CallOptions {
  /** The way to the server: `stdio({ command })`, `webSocket({ url, token })`, `streams(readable, writable)`, or one of one's own. */
  readonly transport: TransportFactory
  /**
   * Make the connection again when it was lost: at once where a session is to be gone on with, else when something is asked.
   * Calls that were not sent yet are sent then; those that were sent are not said twice, but reject with
   * `RexdDisconnected`. Sessions that are not `resumable` end with their connection. Without it nothing can be asked after
   * a loss. True over a WebSocket unless told, else false.
   */
  readonly reconnect?: boolean | ReconnectOptions
  /** Events of processes that were started by `call('exec.start')`, of those that are over for `exec`, and every `session.gap`. */
  readonly onEvent?: (event: RexdEvent) => void
  /** Told whenever the connection was lost, why, and whether it is being made again, and when it is: for those who show how it stands. */
  readonly onConnection?: (state: ConnectionState) => void
}

export interface OpenOptions extends CallOptions {
  /** Who asks, for the journal of the server: at most 64 characters. */
  readonly clientName: string
  readonly clientVersion?: string
  /** Directories below those that the server allows; all of them unless told. */
  readonly workspaceRoots?: readonly string[]
  /** What it is to be able to do, as `exec`; it gets what the server grants of that. All of it unless told. */
  readonly capabilities?: readonly CapabilityName[]
  /** Limits below those of the server. */
  readonly limits?: SessionLimits
  /** Where commands run and relative paths begin; the first root unless told. */
  readonly cwd?: string
  /**
   * It outlives a connection that is lost, for a minute, and the client goes on with it: over WebSockets alone. False
   * unless told. Rejects with a `TypeError` where the client does not connect again.
   */
  readonly resumable?: boolean
  /** The agent of the mesh that its commands run on, where the server has a mesh; the server itself unless told. */
  readonly target?: string
}

/** Bytes and milliseconds. */
export interface SessionLimits {
  /** Output of one process, both streams together. */
  readonly maxOutputBytes?: number
  /** What one message carries of a file that is read. */
  readonly maxFileReadBytes?: number
  readonly maxProcesses?: number
  /** Of a command that names no time. */
  readonly defaultTimeoutMs?: number
  readonly hardTimeoutMs?: number
}

/** A connection to one server. Close it when nothing more is to be asked. */
export class RexdClient {
  readonly #connection: Connection
  readonly #sessions = new Set<RexdSession>()

  constructor(components: { connection: Connection }) {
    this.#connection = components.connection
  }

  /** There is a connection now, as far as anybody knows. */
  get connected(): boolean {
    return this.#connection.connected
  }

  /** Rejects with `RexdError` as the server refuses, and with `RexdProtocolError` where it speaks another version. */
  async open({ signal, cwd, ...asked }: OpenOptions): Promise<RexdSession> {
    if (asked.resumable === true && !this.#connection.lasting)
      throw new TypeError('resumable: the client does not connect again; connect with `reconnect`')
    const session = (result: unknown): RexdSession => this.#session(result, cwd ?? null)
    return this.#connection.request({
      method: 'session.open',
      params: openParams(asked),
      signal,
      accept: session,
      late: (result) =>
        void session(result)
          .close()
          .catch(() => undefined),
    })
  }

  /** One method by its name, with the params and the result of the protocol as they are. */
  async call<M extends Method>(method: M, params: Params<M>, { signal }: CallOptions = {}): Promise<Result<M>> {
    const accept = (result: unknown): Result<M> => resultOf(result, method)
    const { session_id: id } = params as { readonly session_id?: string }
    const scope = id === undefined ? undefined : this.#connection.linkOf(id)
    return this.#connection.request({ method, params, scope, signal, accept })
  }

  /** Ends every session, and with it what runs; resolves when nothing is left of the connection. */
  async close(): Promise<void> {
    // A server goes on until everything is answered, and an `exec.wait` is answered when its program ends.
    for (const session of this.#sessions) void session.close().catch(() => undefined)
    await this.#connection.close()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close()
  }

  #session(result: unknown, cwd: string | null): RexdSession {
    const needed = ['session_id', 'protocol', 'server_version', 'capabilities', 'workspace_roots'] as const
    const opened = resultOf(result, 'session.open', needed)
    if (opened.protocol !== PROTOCOL) throw new RexdProtocolError(`the server speaks ${opened.protocol}, not ${PROTOCOL}`)
    fieldsOf(opened.limits, 'session.open: limits')
    for (const session of this.#sessions) if (session.ended) this.#sessions.delete(session)
    const link = this.#connection.link({ id: opened.session_id, token: opened.resume_token ?? null })
    const session = new RexdSession({ connection: this.#connection, link }, { opened, cwd })
    this.#sessions.add(session)
    return session
  }
}

const openParams = ({
  clientName,
  clientVersion,
  workspaceRoots,
  capabilities,
  limits = {},
  resumable,
  target,
}: Omit<OpenOptions, 'signal' | 'cwd'>): Params<'session.open'> =>
  present<Params<'session.open'>>({
    client_name: clientName,
    client_version: clientVersion,
    workspace_roots: workspaceRoots,
    requested_capabilities: capabilities,
    limits: present<NonNullable<Params<'session.open'>['limits']>>({
      max_output_bytes: limits.maxOutputBytes,
      max_file_read_bytes: limits.maxFileReadBytes,
      max_processes_per_session: limits.maxProcesses,
      default_timeout_ms: limits.defaultTimeoutMs,
      hard_timeout_ms: limits.hardTimeoutMs,
    }),
    resumable,
    target,
  })

/**
 * Opens the way to a server. Rejects with `RexdDisconnected` where there is none, after one try; that something can be
 * started does not say yet that it speaks REXD: the first call does.
 */
export const connect = async ({
  transport,
  reconnect = transport.keepsSessions,
  onEvent,
  onConnection,
  signal,
}: ConnectOptions): Promise<RexdClient> => {
  if (reconnect !== false && !transport.again) throw new TypeError(`reconnect: ${transport.name} cannot be opened again`)
  const options = reconnect === true ? {} : reconnect
  const backoff = options === false ? null : new Backoff({ random: Math.random }, options)
  // In a microtask of its own: what a callback throws must not reach the connection.
  const connection = new Connection(
    { transport, backoff },
    {
      onOther: (event) => onEvent && queueMicrotask(() => onEvent(event)),
      onConnection: (state) => onConnection && queueMicrotask(() => onConnection(state)),
    },
  )
  await connection.open(signal)
  return new RexdClient({ connection })
}
