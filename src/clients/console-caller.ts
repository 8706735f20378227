import type { Clock, Timer } from '../base/clock.ts'
import type { Environment } from '../base/environment.ts'
import { AppError } from '../base/errors.ts'
import type { ConsoleReply } from '../protocol/console.ts'
import { type ConsoleLink, openConsole } from './console-link.ts'

/** How long a host may take to reply to an abort: its programs have 200 ms, and its disk some time. */
export const ABORTED_REPLY_MS = 10_000

/** The reply to a request that was sent; null: the host ended without one. */
export const replyOn = async (link: ConsoleLink, request: object): Promise<ConsoleReply | null> => {
  // A host of the newer protocol wants a ping before each command; ours takes both.
  link.send({ action: 'ping' })
  link.send(request)
  for (;;) {
    const line = await link.next()
    if (line === null) return null
    const { exit, output } = line
    if (exit === undefined) continue
    if (typeof exit === 'number' && Number.isInteger(exit) && typeof output === 'string') return line as unknown as ConsoleReply
    throw new AppError('malformed', 'the host answered something that is no reply')
  }
}

/** Calls of one console, a connection for each. */
export class ConsoleCalls {
  readonly #clock: Clock
  readonly #env: Environment

  constructor(components: { readonly clock: Clock }, init: { readonly env: Environment }) {
    this.#clock = components.clock
    this.#env = init.env
  }

  /** Sends a request once. Null: no host listens. Throws `daemon_unreachable` where it ended before it replied, or was aborted and says nothing. */
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
