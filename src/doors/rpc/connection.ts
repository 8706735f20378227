import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { MAX_RPC_PENDING } from '../../protocol/rexd-limits.ts'
import { answerMessage } from './answer.ts'
import { parseMessage, type RpcMessage } from './message.ts'
import { Methods } from './methods.ts'
import type { MethodsComponents, MethodsInit } from './own-sessions.ts'
import type { Send } from './session-events.ts'

export interface ConnectionComponents extends Omit<MethodsComponents, 'send'> {
  readonly log: Logger
  /** One message to the other side; a promise while it is behind. */
  readonly send: Send
}

/** One caller, whatever carries its messages: each is answered when it is done, not in the order of the questions. */
export class RpcConnection {
  readonly #components: ConnectionComponents
  readonly #methods: Methods
  readonly #pending = new Set<Promise<void>>()
  #room: PromiseWithResolvers<void> | null = null

  constructor(components: ConnectionComponents, init: MethodsInit) {
    this.#components = components
    this.#methods = new Methods(components, init)
  }

  /** Takes one message. A promise: no more may be given before it settles. */
  receive(text: string): void | Promise<void> {
    return this.take(parseMessage(text))
  }

  take(message: RpcMessage): void | Promise<void> {
    const work = this.#answer(message).catch((error: unknown) => {
      this.#components.log.error({ err: errorText(error) }, 'a message could not be answered')
    })
    this.#pending.add(work)
    void work.finally(() => {
      this.#pending.delete(work)
      this.#room?.resolve()
      this.#room = null
    })
    if (this.#working < MAX_RPC_PENDING) return undefined
    this.#room ??= Promise.withResolvers<void>()
    return this.#room.promise
  }

  /** Resolves when everything that was asked is answered, but for what waits for a program. */
  async idle(): Promise<void> {
    while (this.#working > 0) await Promise.race(this.#pending)
  }

  get #working(): number {
    return this.#pending.size - this.#methods.waiting
  }

  /** The caller is gone: whatever runs for it is ended. */
  async close(): Promise<void> {
    await this.#methods.close()
  }

  async #answer(message: RpcMessage): Promise<void> {
    const { metrics, log } = this.#components
    const { said, afterwards } = await answerMessage(message, { methods: this.#methods, metrics, log })
    // Events of what was started stand behind its answer, even where that waits for its reader.
    const sent = said === null ? undefined : this.#components.send(said)
    afterwards()
    await sent
  }
}
