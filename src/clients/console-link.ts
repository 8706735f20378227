import type { Socket } from 'node:net'
import { consoleSockets, squatted } from '../base/console-socket.ts'
import type { Environment } from '../base/environment.ts'
import { AppError } from '../base/errors.ts'
import { dialOwn } from '../base/own-socket.ts'
import { consoleLine } from '../protocol/console.ts'
import { linesOf } from '../protocol/lines.ts'

/** One line of a host: an output of the largest size, each of its characters escaped, and what stands around it. */
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

  /** The next line of the host; null where it has closed the connection. Throws `malformed` for what is none of its lines. */
  async next(): Promise<Record<string, unknown> | null> {
    const { done, value: line } = await this.#lines.next().catch((error: unknown) => {
      if (error instanceof AppError) throw error
      // A host that dies with what we sent unread resets the connection.
      return { done: true as const, value: undefined }
    })
    if (done === true) return null
    let value: unknown
    try {
      value = JSON.parse(line.toString())
    } catch (error) {
      throw new AppError('malformed', 'the host answered something that is no JSON', { cause: error })
    }
    if (typeof value !== 'object' || value === null) throw new AppError('malformed', 'the host answered something that is no object')
    return value as Record<string, unknown>
  }

  /** Nothing waits any more: the host ends what was asked for. */
  close(): void {
    this.#socket.destroy()
  }
}

/** Connects to the console of this user; null: there is none. Throws `conflict` for a socket that another user has put there. */
export const openConsole = async (env: Environment): Promise<ConsoleLink | null> => {
  const uid = process.geteuid?.() ?? 0
  const { own, shared } = consoleSockets(env, uid)
  for (const path of [own, shared]) {
    const socket = path === null ? null : await dialOwn(path, squatted)
    if (socket !== null) return new ConsoleLink({ socket })
  }
  return null
}
