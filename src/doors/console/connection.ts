import { unlink } from 'node:fs/promises'
import { type Server, type Socket, createServer } from 'node:net'
import type { Clock, Timer } from '../../base/clock.ts'
import { AppError, errorText, isAppError } from '../../base/errors.ts'
import { type ConsoleSockets, answers, foreignSocket, listenAt, listenPrivately, squatted } from '../../base/unix-sockets.ts'
import {
  CONSOLE_LINE_MS,
  CONSOLE_REPLY_MS,
  CONSOLE_REST_MS,
  type ConsoleMessage,
  type ConsoleReply,
  type ConsoleRequest,
  MAX_CONSOLE_ATTACHED,
  MAX_CONSOLE_CONNECTIONS,
  MAX_CONSOLE_LINE,
  PONG,
  consoleLine,
  readConsoleLine,
  refusalOf,
} from '../../protocol/console/messages.ts'
import type { TranscriptEntry } from '../../protocol/console/transcript.ts'
import { LineSplitter } from '../../protocol/lines.ts'
import type { ConsoleSubscriber } from './host.ts'

/** The host as a connection needs it. */
export interface ConsoleService {
  run(request: ConsoleRequest, gone: AbortSignal): Promise<ConsoleReply>
  /** Returns a function that detaches, or null if too many clients are attached. */
  attach(one: ConsoleSubscriber): (() => void) | null
}

/** Maximum unread reply bytes of a client that continues to send requests. Then it is disconnected. */
const MAX_UNREAD = 64 * 1024
const HANG_UP_MS = 1_000
/** As MAX_UNREAD, for attached clients. */
const MAX_UNREAD_ENTRIES = 8 * 1024 * 1024

/**
 * One client. Callers of both generations are served. An old one sends its command at once and has one reply and the end of the connection.
 * A new one sends a ping before each command and goes on. Any end of the client's data aborts its command.
 */
export class ConsoleConnection {
  readonly #service: ConsoleService
  readonly #clock: Clock
  readonly #socket: Socket
  readonly #lines = new LineSplitter({ max: MAX_CONSOLE_LINE })
  readonly #gone = new AbortController()
  /** `fresh` means that no request has come yet. After `pinged`, the next line may be a command. */
  #state: 'fresh' | 'pinged' | 'resting' | 'running' | 'attached' | 'over' = 'fresh'
  #timer: Timer
  /** A line has begun. */
  #started = false

  constructor(deps: { service: ConsoleService; clock: Clock }, init: { socket: Socket }) {
    this.#service = deps.service
    this.#clock = deps.clock
    this.#socket = init.socket
    this.#timer = this.#deadline(CONSOLE_LINE_MS)
    this.#socket.on('data', (chunk: Buffer) => this.#take(chunk))
    this.#socket.on('end', () => this.#ended())
    this.#socket.on('close', () => this.#close())
    this.#socket.on('error', () => this.#socket.destroy())
  }

  /** Called when the host is stopping. Pending replies are sent within a second, then the connection closes. */
  hangUp(): void {
    this.#state = 'over'
    this.#wait(null)
    this.#timer = this.#deadline(HANG_UP_MS)
    this.#socket.destroySoon()
  }

  #deadline(ms: number): Timer {
    return this.#clock.setTimeout(() => this.#late(), ms, { unref: true })
  }

  #late(): void {
    if (this.#state === 'over') this.#socket.destroy()
    else if (this.#started) this.#refuse(`a line was not finished within ${CONSOLE_LINE_MS / 1000} s`)
    else if (this.#state !== 'running' && this.#state !== 'attached') this.#finish()
  }

  #wait(ms: number | null): void {
    this.#timer.cancel()
    if (ms !== null) this.#timer = this.#deadline(ms)
  }

  #take(chunk: Buffer): void {
    try {
      for (const line of this.#lines.pushStrictly(chunk, () => new AppError('too_large', `a line has at most ${MAX_CONSOLE_LINE} bytes`))) {
        if (this.#state === 'over') return
        this.#started = false
        this.#handle(line)
      }
    } catch (error) {
      return this.#refuse(errorText(error))
    }
    const begins = chunk.at(-1) !== 0x0a
    if (this.#state === 'over' || (begins && this.#started)) return
    this.#started = begins
    const rests = this.#state !== 'running' && this.#state !== 'attached'
    this.#wait(begins ? CONSOLE_LINE_MS : rests ? CONSOLE_REST_MS : null)
  }

  #handle(line: Buffer): void {
    const message = readConsoleLine(line)
    if (message.kind === 'bad') return this.#refuse(message.problem)
    if (message.kind === 'ping') return this.#pong()
    if (this.#state === 'running') return this.#whileRunning(message)
    if (message.kind === 'abort' || this.#state === 'attached') return this.#finish()
    if (message.kind === 'attach') return this.#attach(message.ansi)
    if (this.#state === 'resting') return this.#refuse('send a ping before a further command on this connection')
    void this.#run(message.request, this.#state === 'fresh')
  }

  #pong(): void {
    if (this.#socket.writableLength > MAX_UNREAD) {
      this.#socket.destroy()
      return
    }
    this.#write(PONG)
    if (this.#state === 'fresh' || this.#state === 'resting') this.#state = 'pinged'
  }

  #whileRunning({ kind }: ConsoleMessage): void {
    if (kind === 'abort') this.#gone.abort()
    else this.#refuse('a connection can run only one command at a time')
  }

  /** `once` means that the client uses the connection for this command alone. */
  async #run(request: ConsoleRequest, once: boolean): Promise<void> {
    this.#state = 'running'
    this.#wait(null)
    const reply = await this.#service.run(request, this.#gone.signal)
    if (this.#closed || this.#socket.destroyed) return
    this.#write(reply)
    if (once || this.#gone.signal.aborted) return this.#finish()
    this.#state = 'resting'
    this.#wait(this.#started ? CONSOLE_LINE_MS : CONSOLE_REST_MS)
  }

  #attach(ansi: boolean): void {
    const tell = (entry: TranscriptEntry): void => {
      if (this.#socket.writableLength > MAX_UNREAD_ENTRIES) this.#socket.destroy()
      else this.#write({ event: 'transcript', entry })
    }
    const detach = this.#service.attach({ ansi, emit: tell })
    if (detach === null) return this.#refuse(`${MAX_CONSOLE_ATTACHED} are attached; no others are allowed`)
    this.#state = 'attached'
    this.#wait(null)
    this.#socket.once('close', detach)
  }

  /** Refuses an invalid line and ends the command and the connection. */
  #refuse(message: string): void {
    this.#write(refusalOf(message))
    this.#finish()
  }

  #write(value: object): void {
    this.#socket.write(consoleLine(value))
  }

  /** Sends pending replies and reads no more. */
  #finish(): void {
    this.#state = 'over'
    this.#gone.abort()
    this.#wait(CONSOLE_REPLY_MS)
    this.#socket.end()
    this.#socket.resume()
  }

  /** The client has closed its side or is gone. */
  #ended(): void {
    this.#gone.abort()
    if (this.#state !== 'running') this.#finish()
  }

  get #closed(): boolean {
    return this.#state === 'over'
  }

  #close(): void {
    this.#state = 'over'
    this.#gone.abort()
    this.#wait(null)
  }
}

const IN_USE = 'another host of this user is running'

/**
 * A socket in a directory that all users share. The directory is sticky, so other users cannot remove our socket, but may have created
 * theirs first. Returns the problem of such a socket, or null if it listens. Throws `conflict` for another host of this user.
 */
const listenShared = async (server: Server, path: string, uid: number): Promise<string | null> => {
  const problem = foreignSocket(path, uid)
  if (typeof problem === 'string') return problem
  if (problem === null) {
    if (await answers(path)) throw new AppError('conflict', `${path}: ${IN_USE}`)
    // A socket that a dead host of this user left. The lock prevents another host from creating one now.
    await unlink(path)
  }
  const taken = `another program has taken ${path} meanwhile`
  try {
    await listenPrivately(server, path, taken)
    return null
  } catch (error) {
    if (isAppError(error, 'conflict')) return taken
    throw error
  }
}

/** Addresses of a host. */
export interface Listening {
  readonly paths: readonly string[]
  /** Why the host does not listen on the shared path. Null means it does, or was not asked to. */
  readonly taken: string | null
}

/** Listens for clients and limits their number. */
export class ConsoleListeners {
  readonly #deps: { readonly service: ConsoleService; readonly clock: Clock }
  readonly #servers: Server[] = []
  readonly #connections = new Map<Socket, ConsoleConnection>()
  readonly #uid: number

  constructor(deps: { service: ConsoleService; clock: Clock }, init: { uid: number }) {
    this.#deps = deps
    this.#uid = init.uid
  }

  /** If another user has taken the shared path, the host still listens on its own. Throws `conflict`, `loose_permissions`, `bad_config`. */
  async start({ own, shared }: ConsoleSockets): Promise<Listening> {
    if (own !== null) await listenAt(this.#server(), { kind: 'unix', path: own }, `${own}: ${IN_USE}`)
    const taken = shared === null ? null : await listenShared(this.#server(), shared, this.#uid)
    if (taken !== null && own === null) throw squatted(taken)
    return { paths: [own, taken === null ? shared : null].filter((path) => path !== null), taken }
  }

  /** Accepts no more clients and removes the sockets. */
  async close(): Promise<void> {
    const closed = this.#servers.map(async (server) => new Promise((resolve) => server.close(resolve)))
    // Node closes a server when its last connection has closed.
    for (const connection of this.#connections.values()) connection.hangUp()
    await Promise.all(closed)
  }

  #server(): Server {
    // A client that has closed its side still gets its reply.
    const server = createServer({ allowHalfOpen: true }, (socket) => this.#accept(socket))
    this.#servers.push(server)
    return server
  }

  #accept(socket: Socket): void {
    if (this.#connections.size >= MAX_CONSOLE_CONNECTIONS) {
      socket.on('error', () => undefined)
      socket.end(consoleLine(refusalOf(`${MAX_CONSOLE_CONNECTIONS} clients are connected; no others are allowed`)))
      socket.destroySoon()
      return
    }
    this.#connections.set(socket, new ConsoleConnection(this.#deps, { socket }))
    socket.once('close', () => this.#connections.delete(socket))
  }
}
