import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { answerMessage } from './answer.ts'
import { CallSlots } from './call-slots.ts'
import type { RpcMessage } from './message.ts'
import { Methods } from './methods.ts'
import type { Send } from './session-events.ts'
import type { MethodsComponents, MethodsInit } from './session-methods.ts'

export interface RpcConnectionComponents extends Omit<MethodsComponents, 'send'> {
  readonly log: Logger
  /** One message to the other side; a promise while it is behind. */
  readonly send: Send
}

/** One caller, whatever carries its messages: each is answered when it is done, not in the order of the questions. */
export class RpcConnection {
  readonly #components: RpcConnectionComponents
  readonly #methods: Methods
  readonly #places = new CallSlots()
  readonly #pending = new Set<Promise<void>>()

  constructor(components: RpcConnectionComponents, init: MethodsInit) {
    this.#components = components
    this.#methods = new Methods(components, init)
  }

  /** A promise: no more may be given before it settles. */
  take(message: RpcMessage): void | Promise<void> {
    const work = this.#answer(message).catch((error: unknown) => {
      this.#components.log.error({ err: errorText(error) }, 'a message could not be answered')
    })
    this.#pending.add(work)
    void work.finally(() => this.#pending.delete(work))
    return this.#places.free ? undefined : this.#places.room()
  }

  /** Resolves when everything that was asked is answered, but for what waits for a program or an event. */
  async idle(): Promise<void> {
    await this.#places.idle()
  }

  /** The caller is gone: whatever runs for it is ended, and nobody waits any more. */
  async close(): Promise<void> {
    await this.#methods.close()
  }

  /** Resolves when everything that was asked is answered. */
  async settled(): Promise<void> {
    await Promise.all(this.#pending)
  }

  async #answer(message: RpcMessage): Promise<void> {
    const { metrics, log } = this.#components
    const components = { methods: this.#methods, places: this.#places, gone: null, metrics, log }
    const { said, afterwards, taken } = await answerMessage(message, components)
    try {
      // Events of what was started stand behind its answer, even where that waits for its reader.
      const sent = said === null ? undefined : this.#components.send(said)
      afterwards()
      await sent
    } finally {
      taken()
    }
  }
}
