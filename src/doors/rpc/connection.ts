import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { answerMessage } from './answer.ts'
import { CallSlots } from './call-slots.ts'
import type { RpcMessage } from './message.ts'
import { Methods } from './methods.ts'
import type { Send } from './session-events.ts'
import type { RpcServices, MethodsInit } from './session-methods.ts'

export interface RpcConnectionComponents extends Omit<RpcServices, 'send'> {
  readonly log: Logger
  /** Sends one message. Returns a promise while the client is behind. */
  readonly send: Send
}

/** One client on any transport. Each call is answered when it is done, not in the order of the calls. */
export class RpcConnection {
  readonly #deps: RpcConnectionComponents
  readonly #methods: Methods
  readonly #places = new CallSlots()
  readonly #pending = new Set<Promise<void>>()

  constructor(deps: RpcConnectionComponents, init: MethodsInit) {
    this.#deps = deps
    this.#methods = new Methods(deps, init)
  }

  /** Returns a promise if no further message may be given until it settles. */
  take(message: RpcMessage): void | Promise<void> {
    const work = this.#answer(message).catch((error: unknown) => {
      this.#deps.log.error({ err: errorText(error) }, 'a message could not be answered')
    })
    this.#pending.add(work)
    void work.finally(() => this.#pending.delete(work))
    return this.#places.free ? undefined : this.#places.room()
  }

  /** Resolves when all calls are answered, except those that wait for a program or an event. */
  async idle(): Promise<void> {
    await this.#places.idle()
  }

  /** The client is gone: ends its processes and all waits. */
  async close(): Promise<void> {
    await this.#methods.close()
  }

  /** Resolves when all calls are answered. */
  async settled(): Promise<void> {
    await Promise.all(this.#pending)
  }

  async #answer(message: RpcMessage): Promise<void> {
    const { metrics, log } = this.#deps
    const deps = { methods: this.#methods, places: this.#places, gone: null, metrics, log }
    const { said, afterwards, taken } = await answerMessage(message, deps)
    try {
      // Events of a process follow the answer that names it, even if that answer is still buffered.
      const sent = said === null ? undefined : this.#deps.send(said)
      afterwards()
      await sent
    } finally {
      taken()
    }
  }
}
