import type { Socket } from 'node:net'
import type { Clock, Timer } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { Environment } from '../base/runtime.ts'
import { consoleSockets, dialOwn, squatted } from '../base/unix-sockets.ts'
import { type ConsoleReply, consoleLine } from '../protocol/console/messages.ts'
import { linesOf } from '../protocol/lines.ts'

/** Bytes of the longest line of a host. The largest output with every character escaped and its envelope fit. */
const MAX_HOST_LINE = 8 * 1024 * 1024

/** A connection to the console of this user. */
export class ConsoleLink {
  readonly #socket: Socket
  readonly #lines: AsyncGenerator<Buffer, void, undefined>

  constructor(init: { readonly socket: Socket }) {
    this.#socket = init.socket
    this.#socket.on('error', () => undefined)
    this.#lines = linesOf(
      this.#socket as AsyncIterable<Buffer>,
      MAX_HOST_LINE,
      () => new AppError('too_large', 'a line of the host is too long'),
    )
  }

  send(message: object): void {
    this.#socket.write(consoleLine(message))
  }

  /** The next line of the host, or null when it has closed the connection. Throws `malformed` for an invalid line. */
  async next(): Promise<Record<string, unknown> | null> {
    const { done, value: line } = await this.#lines.next().catch((error: unknown) => {
      if (error instanceof AppError) throw error
      // A host that ends before it reads the request resets the connection.
      return { done: true as const, value: undefined }
    })
    if (done === true) return null
    let value: unknown
    try {
      value = JSON.parse(line.toString())
    } catch (error) {
      throw new AppError('malformed', 'the host sent an answer that is not JSON', { cause: error })
    }
    if (typeof value !== 'object' || value === null) throw new AppError('malformed', 'the host sent an answer that is not a JSON object')
    return value as Record<string, unknown>
  }

  /** Closes the connection. The host then ends the command. */
  close(): void {
    this.#socket.destroy()
  }
}

/** Connects to the console of this user, or null if absent. Throws `conflict` if the socket belongs to another user. */
export const openConsole = async (env: Environment): Promise<ConsoleLink | null> => {
  const uid = process.geteuid?.() ?? 0
  const { own, shared } = consoleSockets(env, uid)
  for (const path of [own, shared]) {
    const socket = path === null ? null : await dialOwn(path, squatted)
    if (socket !== null) return new ConsoleLink({ socket })
  }
  return null
}

/** Timeout for the reply to an abort. Programs have 200 ms, and the disk needs some time. */
export const ABORTED_REPLY_MS = 10_000

/** The reply to a sent request, or null if the host ended without one. */
export const replyOn = async (link: ConsoleLink, request: object): Promise<ConsoleReply | null> => {
  // A host of the newer protocol expects a ping before each command. The x0x host accepts both.
  link.send({ action: 'ping' })
  link.send(request)
  for (;;) {
    const line = await link.next()
    if (line === null) return null
    const { exit, output } = line
    if (exit === undefined) continue
    if (typeof exit === 'number' && Number.isInteger(exit) && typeof output === 'string') return line as unknown as ConsoleReply
    throw new AppError('malformed', 'the host sent an answer that is not a reply')
  }
}

/** Calls of the console, each over a new connection. */
export class ConsoleCalls {
  readonly #clock: Clock
  readonly #env: Environment

  constructor(components: { readonly clock: Clock }, init: { readonly env: Environment }) {
    this.#clock = components.clock
    this.#env = init.env
  }

  /** Sends a request once. Returns null if no host listens. Throws `daemon_unreachable` if the host ends or ignores an abort. */
  async run(request: object, signal: AbortSignal): Promise<ConsoleReply | null> {
    signal.throwIfAborted()
    const link = await openConsole(this.#env)
    if (link === null) return null
    let late: Timer | undefined
    const abort = (): void => {
      link.send({ action: 'abort' })
      late = this.#clock.setTimeout(() => link.close(), ABORTED_REPLY_MS)
    }
    signal.addEventListener('abort', abort, { once: true })
    try {
      const reply = await replyOn(link, request)
      if (reply !== null) return reply
      throw new AppError('daemon_unreachable', 'the host ended before it replied, or went silent; whether the command ran is not known')
    } finally {
      signal.removeEventListener('abort', abort)
      late?.cancel()
      link.close()
    }
  }

  async check(): Promise<boolean> {
    const link = await openConsole(this.#env)
    link?.close()
    return link !== null
  }
}
