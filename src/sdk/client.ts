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
  /** The way to reach the server. Use `stdio({ command })`, `webSocket({ url, token })`, `streams(readable, writable)`, or your own. */
  readonly transport: TransportFactory
  /**
   * Reconnect after a loss, by default only over a WebSocket. It happens at once if a session can be resumed, otherwise at the next call.
   * Unsent calls are sent then. Sent ones are not repeated, but reject with `RexdDisconnected`. Sessions that are not `resumable` end with
   * their connection. Without it, no call is possible after a loss.
   */
  readonly reconnect?: boolean | ReconnectOptions
  /** Receives events of processes started by `call('exec.start')`, events of ended `exec` processes, and every `session.gap`. */
  readonly onEvent?: (event: RexdEvent) => void
  /** Called when the connection is lost, with the reason and whether it is being restored, and when it is restored. */
  readonly onConnection?: (state: ConnectionState) => void
}

export interface OpenOptions extends CallOptions {
  /** Name of the client for the server's journal, at most 64 characters. */
  readonly clientName: string
  readonly clientVersion?: string
  /** Directories within those that the server allows, by default all of them. */
  readonly workspaceRoots?: readonly string[]
  /** Capabilities to request, such as `exec`, by default all. The session gets those that the server grants. */
  readonly capabilities?: readonly CapabilityName[]
  /** Limits below those of the server. */
  readonly limits?: SessionLimits
  /** Working directory of commands and start of relative paths, by default the first root. */
  readonly cwd?: string
  /**
   * The session survives a lost connection for a minute, and the client resumes it. Only over WebSockets. The default is false. Rejects
   * with a `TypeError` if the client does not reconnect.
   */
  readonly resumable?: boolean
  /** The agent of the mesh that its commands run on, if the server has a mesh. The default is the server itself. */
  readonly target?: string
}

/** In bytes and milliseconds. */
export interface SessionLimits {
  /** Output of a process, both streams together. */
  readonly maxOutputBytes?: number
  /** Bytes of a file in one message. */
  readonly maxFileReadBytes?: number
  readonly maxProcesses?: number
  /** Timeout of a command without one. */
  readonly defaultTimeoutMs?: number
  readonly hardTimeoutMs?: number
}

/** A connection to one server. Close it when you are done. */
export class RexdClient {
  readonly #connection: Connection
  readonly #sessions = new Set<RexdSession>()

  constructor(components: { connection: Connection }) {
    this.#connection = components.connection
  }

  /** Whether there is a connection, as far as is known. */
  get connected(): boolean {
    return this.#connection.connected
  }

  /** Rejects with `RexdError` if the server refuses, and with `RexdProtocolError` if it speaks another version. */
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

  /** Calls any method of the protocol with its own params and result. */
  async call<M extends Method>(method: M, params: Params<M>, { signal }: CallOptions = {}): Promise<Result<M>> {
    const accept = (result: unknown): Result<M> => resultOf(result, method)
    const { session_id: id } = params as { readonly session_id?: string }
    const scope = id === undefined ? undefined : this.#connection.linkOf(id)
    return this.#connection.request({ method, params, scope, signal, accept })
  }

  /** Ends every session with its processes, and resolves when the connection is cleaned up. */
  async close(): Promise<void> {
    // A server answers everything before it ends, and `exec.wait` is answered when its program ends.
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

/** Connects to a server. Rejects with `RexdDisconnected` after one failed attempt. The first call finds out whether it speaks REXD. */
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
  // A separate microtask keeps an error in a callback from the connection.
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
