import { type Server, type Socket, createServer } from 'node:net'
import type { Clock, Timer } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import { writableByOthers } from '../base/file-permissions.ts'
import type { Logger } from '../base/log.ts'
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
import type { ApprovalStore } from './approval-store.ts'
import type { ApprovalService } from './approval-service.ts'
import type { DeskRecords } from './history.ts'
import type { DeskJournal } from './journal.ts'
import { Seal, humanKeyOf, newHelloNonce } from './seal.ts'
import { type DeskSession, EngineSession, ApproverSession } from './sessions.ts'
import { tokenBytes } from './store-format.ts'
import { type OutputSubscriptions, isEvent, isOutput } from './watchers.ts'

const HANG_UP_MS = 1_000

/** What a connection needs of its server. */
export interface DeskConnectionHost {
  /** The key of each role; a role without one lets nobody in. */
  keys(): Promise<Readonly<Record<DeskRole, Uint8Array | null>>>
  /** Null: as many of this role are connected as may be. */
  session(role: DeskRole, name: string, send: (body: object) => void): DeskSession | null
  /** A line was not taken, and the connection is closed. */
  refused(code: 'unauthorized' | 'malformed' | 'rate_limited', role: DeskRole | null, name: string | null, problem: string): void
}

/** One client of the desk, from `hello` to its end. Whatever is wrong with a line ends the connection. */
export class DeskConnection {
  readonly #host: DeskConnectionHost
  readonly #clock: Clock
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

  constructor(components: { host: DeskConnectionHost; clock: Clock }, init: { socket: Socket; onClose: () => void }) {
    this.#host = components.host
    this.#clock = components.clock
    this.#socket = init.socket
    this.#onClose = init.onClose
    this.#rate = new TokenBucket(components, DESK_LINES)
    this.#late = this.#clock.setTimeout(() => this.#refuse('unauthorized', 'it proved no role in time'), DESK_OPEN_MS, { unref: true })
    this.#socket.on('error', () => this.#socket.destroy())
    this.#socket.on('close', () => this.#closed())
    this.#socket.on('end', () => this.#socket.destroy())
    void this.#start()
  }

  get role(): DeskRole | null {
    return this.#role
  }

  /** What was said goes out within a second, or is lost. */
  close(): void {
    this.#socket.destroySoon()
    const timer = this.#clock.setTimeout(() => this.#socket.destroy(), HANG_UP_MS)
    this.#socket.once('close', () => timer.cancel())
  }

  async #start(): Promise<void> {
    this.#keys = await this.#host.keys()
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

  /** The first line: the role is the one whose key its MAC was made with. */
  #open(line: Buffer): void {
    let why = 'no role has a key now'
    for (const role of DESK_ROLES) {
      const key = this.#keys?.[role] ?? null
      if (key === null) continue
      const seal = new Seal({ key, role, serverNonce: this.#nonce, side: 'desk', now: () => this.#clock.now() })
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
    const session = this.#host.session(role, body.name, (answer) => this.#send(answer))
    if (session === null) {
      this.#send({ type: 'error', id: null, code: 'rate_limited', message: `as many are connected as may be: close one of them` })
      return this.close()
    }
    this.#role = role
    this.#session = session
    this.#late.cancel()
    this.#send({ type: 'opened', role })
  }

  #send(body: object): void {
    // Who reads slowly misses output that is told again, and what became of runs, which the journal has; and loses no question for it.
    const unread = this.#socket.writableLength
    if (isOutput(body) ? unread > 0 : isEvent(body) && unread > MAX_DESK_EVENTS_UNREAD) return
    if (this.#seal !== null) this.#write(this.#seal.line(body))
  }

  #write(line: string): void {
    if (this.#isOver || !this.#socket.writable) return
    this.#socket.write(line)
    // Nobody reads: it would take our memory.
    if (this.#socket.writableLength > MAX_DESK_UNREAD) this.#refuse('rate_limited', 'it does not read what it is told')
  }

  #refuse(code: 'unauthorized' | 'malformed' | 'rate_limited', problem: string): void {
    if (this.#isOver) return
    this.#isOver = true
    this.#host.refused(code, this.#role, this.#name, problem)
    this.#socket.destroy()
  }
}

export interface DeskServerComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly desk: ApprovalService
  readonly journal: DeskJournal
  readonly records: DeskRecords
  readonly runs: OutputSubscriptions
  readonly store: ApprovalStore
}

export interface DeskServerInit {
  readonly path: string
  /** Of this data directory's operators, as it is now: it may be made anew while we serve. */
  readonly operatorKey: () => Promise<Uint8Array>
}

/** Serves the prompt protocol on the desk's socket. */
export class DeskServer implements Startable {
  readonly #components: DeskServerComponents
  readonly #init: DeskServerInit
  readonly #server: Server
  readonly #connections = new Set<DeskConnection>()
  readonly #host: DeskConnectionHost

  constructor(components: DeskServerComponents, init: DeskServerInit) {
    this.#components = components
    this.#init = init
    this.#server = createServer((socket) => this.#accept(socket))
    this.#host = {
      keys: async () => this.#keys(),
      session: (role, name, send) => this.#session(role, name, send),
      refused: (code, role, name, problem) => {
        components.log.warn({ code, role, name, problem }, 'a line on the socket of the desk was refused')
        void components.journal.refused({ code, role, name, detail: problem })
      },
    }
  }

  /** Throws `conflict` where another answers there, or something else stands there; `loose_permissions` where others may put one there. */
  async start(): Promise<void> {
    const { path } = this.#init
    const [problem] = writableByOthers(path)
    if (problem !== undefined) throw new AppError('loose_permissions', `${path}: ${problem}`, { data: { file: path } })
    await claimSocketPath(path)
    await listenPrivately(this.#server, path, `another desk answers on ${path}`)
    this.#server.on('error', (error) => this.#components.log.error({ err: error.message }, 'the socket of the desk failed'))
  }

  async stop(): Promise<void> {
    if (!this.#server.listening) return
    const closed = new Promise((resolve) => this.#server.close(resolve))
    for (const connection of this.#connections) connection.close()
    await closed
  }

  async #keys(): Promise<Readonly<Record<DeskRole, Uint8Array | null>>> {
    const { store } = this.#components
    const engine = await store.read().then(tokenBytes, () => null)
    return { engine, human: await this.#init.operatorKey().then(humanKeyOf, () => null) }
  }

  #session(role: DeskRole, name: string, send: (body: object) => void): DeskSession | null {
    if (this.#count(role) >= MAX_DESK_CONNECTIONS[role]) return null
    if (role === 'human') return new ApproverSession(this.#components, { name, send })
    return new EngineSession(this.#components, { engine: name, send })
  }

  #count(role: DeskRole | null): number {
    return [...this.#connections].filter((one) => one.role === role).length
  }

  #accept(socket: Socket): void {
    socket.on('error', () => undefined)
    if (this.#count(null) >= MAX_DESK_CONNECTIONS.unproven) return void socket.destroy()
    const { clock } = this.#components
    const connection = new DeskConnection({ host: this.#host, clock }, { socket, onClose: () => this.#connections.delete(connection) })
    this.#connections.add(connection)
  }
}
