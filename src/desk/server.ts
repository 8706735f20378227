import { type Server, type Socket, createServer } from 'node:net'
import type { Clock, Timer } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import { writableByOthers } from '../base/file-permissions.ts'
import { TokenBucket } from '../base/rate-limit.ts'
import type { Startable } from '../base/startable.ts'
import { claimSocketPath, listenPrivately } from '../base/unix-sockets.ts'
import { DESK_ROLES, DESK_VERSION, type DeskRole, readEngineBody, readApprovalClientBody } from '../protocol/desk/messages.ts'
import {
  DESK_LINES,
  DESK_OPEN_MS,
  MAX_DESK_CONNECTIONS,
  MAX_DESK_EVENTS_UNREAD,
  MAX_DESK_LINE,
  MAX_DESK_UNREAD,
} from '../protocol/limits/approvals.ts'
import { LineSplitter, jsonText } from '../protocol/lines.ts'
import { Seal, approverKeyOf, newHelloNonce } from './seal.ts'
import { type DeskSession, type DeskSessionDeps, EngineSession, ApproverSession } from './sessions.ts'
import { tokenBytes } from './store-format.ts'
import { isEvent, isOutput } from './watchers.ts'
import type { DeskServices } from './services.ts'

const HANG_UP_MS = 1_000

/** The server as a connection needs it. */
export interface DeskConnectionHost {
  /** The key of each role. Null means no client can use this role. */
  keys(): Promise<Readonly<Record<DeskRole, Uint8Array | null>>>
  /** Null if too many clients of this role are connected. */
  session(role: DeskRole, name: string, send: (body: object) => void): DeskSession | null
  /** Reports a refused line. The connection is closed. */
  refused(code: 'unauthorized' | 'malformed' | 'rate_limited', role: DeskRole | null, name: string | null, problem: string): void
}

/** One client, from `hello` to the end. Any invalid line ends the connection. */
export class DeskConnection {
  readonly #deps: { readonly host: DeskConnectionHost; readonly clock: Clock }
  readonly #socket: Socket
  readonly #nonce = newHelloNonce()
  readonly #lines = new LineSplitter({ max: MAX_DESK_LINE })
  readonly #rate: TokenBucket
  readonly #late: Timer
  #keys: Readonly<Record<DeskRole, Uint8Array | null>> | null = null
  #seal: Seal | null = null
  #session: DeskSession | null = null
  #role: DeskRole | null = null
  #name: string | null = null
  #isOver = false
  readonly #onClose: () => void

  constructor(deps: { readonly host: DeskConnectionHost; readonly clock: Clock }, init: { socket: Socket; onClose: () => void }) {
    this.#deps = deps
    this.#socket = init.socket
    this.#onClose = init.onClose
    this.#rate = new TokenBucket(deps, DESK_LINES)
    this.#late = this.#deps.clock.setTimeout(() => this.#refuse('unauthorized', 'it proved no role in time'), DESK_OPEN_MS, { unref: true })
    this.#socket.on('error', () => this.#socket.destroy())
    this.#socket.on('close', () => this.#closed())
    this.#socket.on('end', () => this.#socket.destroy())
    void this.#start()
  }

  get role(): DeskRole | null {
    return this.#role
  }

  /** Sends what was written within a second, then closes. */
  close(): void {
    this.#socket.destroySoon()
    const timer = this.#deps.clock.setTimeout(() => this.#socket.destroy(), HANG_UP_MS)
    this.#socket.once('close', () => timer.cancel())
  }

  async #start(): Promise<void> {
    this.#keys = await this.#deps.host.keys()
    if (this.#isOver) return
    this.#socket.on('data', (chunk: Buffer) => this.#take(chunk))
    this.#write(`${jsonText({ type: 'hello', version: DESK_VERSION, nonce: this.#nonce })}\n`)
  }

  #closed(): void {
    this.#isOver = true
    this.#late.cancel()
    this.#session?.end()
    this.#onClose()
  }

  #take(chunk: Buffer): void {
    try {
      for (const line of this.#lines.pushStrictly(chunk, () => new AppError('malformed', `a line of more than ${MAX_DESK_LINE} bytes`))) {
        if (this.#isOver) return
        this.#line(line)
      }
    } catch (error) {
      this.#refuse('malformed', errorText(error))
    }
  }

  #line(line: Buffer): void {
    if (!this.#rate.take()) return this.#refuse('rate_limited', 'too many lines')
    if (this.#seal === null) return this.#open(line)
    const unsealed = this.#seal.open(line)
    if (unsealed.kind === 'refused') return this.#refuse('unauthorized', unsealed.problem)
    const problem = this.#session?.take(unsealed.body) ?? null
    if (problem !== null) this.#refuse('malformed', problem)
  }

  /** The first line selects the role: the one whose key verifies its MAC. */
  #open(line: Buffer): void {
    let why = 'no role has a key at the moment'
    for (const role of DESK_ROLES) {
      const key = this.#keys?.[role] ?? null
      if (key === null) continue
      const seal = new Seal({ key, role, serverNonce: this.#nonce, side: 'desk', now: () => this.#deps.clock.now() })
      const unsealed = seal.open(line)
      if (unsealed.kind === 'body') return this.#opened(role, seal, unsealed.body)
      why = unsealed.problem
    }
    this.#refuse('unauthorized', why)
  }

  #opened(role: DeskRole, seal: Seal, bytes: Uint8Array): void {
    const body = role === 'engine' ? readEngineBody(bytes) : readApprovalClientBody(bytes)
    if (typeof body === 'string') return this.#refuse('malformed', body)
    if (body.type !== 'open') return this.#refuse('malformed', 'the first body must open')
    if (body.role !== role) return this.#refuse('unauthorized', 'its key is of the other role')
    this.#seal = seal
    this.#name = body.name
    const session = this.#deps.host.session(role, body.name, (answer) => this.#send(answer))
    if (session === null) {
      this.#send({ type: 'error', id: null, code: 'rate_limited', message: `too many clients are connected: close one of them` })
      return this.close()
    }
    this.#role = role
    this.#session = session
    this.#late.cancel()
    this.#send({ type: 'opened', role })
  }

  #send(body: object): void {
    // A client that reads slowly misses output, which is sent again, and run events, which the audit log has, but never an approval
    // request.
    const unread = this.#socket.writableLength
    if (isOutput(body) ? unread > 0 : isEvent(body) && unread > MAX_DESK_EVENTS_UNREAD) return
    if (this.#seal !== null) this.#write(this.#seal.line(body))
  }

  #write(line: string): void {
    if (this.#isOver || !this.#socket.writable) return
    this.#socket.write(line)
    // The client does not read. Its unread data would exhaust memory.
    if (this.#socket.writableLength > MAX_DESK_UNREAD) this.#refuse('rate_limited', 'it does not read its messages')
  }

  #refuse(code: 'unauthorized' | 'malformed' | 'rate_limited', problem: string): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#deps.host.refused(code, this.#role, this.#name, problem)
    this.#socket.destroy()
  }
}

export interface DeskServerInit {
  readonly path: string
  /** The operator key as it is now: it can be replaced while the service runs. */
  readonly operatorKey: () => Promise<Uint8Array>
}

/** Serves the approval protocol on the socket of the service. */
export class DeskServer implements Startable {
  readonly #deps: DeskServices & DeskSessionDeps
  readonly #init: DeskServerInit
  readonly #server: Server
  readonly #connections = new Set<DeskConnection>()
  readonly #host: DeskConnectionHost

  constructor(deps: DeskServices & DeskSessionDeps, init: DeskServerInit) {
    this.#deps = deps
    this.#init = init
    this.#server = createServer((socket) => this.#accept(socket))
    this.#host = {
      keys: async () => this.#keys(),
      session: (role, name, send) => this.#session(role, name, send),
      refused: (code, role, name, problem) => {
        deps.log.warn({ code, role, name, problem }, 'a line on the approval socket was refused')
        void deps.journal.refused({ code, role, name, detail: problem })
      },
    }
  }

  /** Throws `conflict` if another service or another file is at the path; `loose_permissions` if other users could create one there. */
  async start(): Promise<void> {
    const { path } = this.#init
    const [problem] = writableByOthers(path)
    if (problem !== undefined) throw new AppError('loose_permissions', `${path}: ${problem}`, { data: { file: path } })
    await claimSocketPath(path)
    await listenPrivately(this.#server, path, `another approval service answers on ${path}`)
    this.#server.on('error', (error) => this.#deps.log.error({ err: error.message }, 'the approval socket failed'))
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return
    const closed = new Promise((resolve) => this.#server.close(resolve))
    for (const connection of this.#connections) connection.close()
    await closed
  }

  async #keys(): Promise<Readonly<Record<DeskRole, Uint8Array | null>>> {
    const { store } = this.#deps
    const engine = await store.read().then(tokenBytes, () => null)
    return { engine, human: await this.#init.operatorKey().then(approverKeyOf, () => null) }
  }

  #session(role: DeskRole, name: string, send: (body: object) => void): DeskSession | null {
    if (this.#count(role) >= MAX_DESK_CONNECTIONS[role]) return null
    if (role === 'human') return new ApproverSession(this.#deps, { name, send })
    return new EngineSession(this.#deps, { engine: name, send })
  }

  #count(role: DeskRole | null): number {
    return [...this.#connections].filter((one) => one.role === role).length
  }

  #accept(socket: Socket): void {
    socket.on('error', () => undefined)
    if (this.#count(null) >= MAX_DESK_CONNECTIONS.unproven) return void socket.destroy()
    const { clock } = this.#deps
    const connection = new DeskConnection({ host: this.#host, clock }, { socket, onClose: () => this.#connections.delete(connection) })
    this.#connections.add(connection)
  }
}
