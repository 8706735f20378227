import { errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { MAX_RPC_PENDING } from '../../protocol/rexd-limits.ts'
import { failure, isCall, methodNotFound, parseMessage, success, type RpcCall, type RpcMessage, type RpcResponse } from './message.ts'
import { Methods, type MethodsComponents, type MethodsInit } from './methods.ts'
import { isMethod, METHODS } from './schemas.ts'

export interface ConnectionComponents extends Omit<MethodsComponents, 'emit'> {
  readonly log: Logger
  /** One message to the other side; a promise while it is behind. */
  readonly send: (message: object) => void | Promise<void>
}

/** One caller, whatever carries its messages: each is answered when it is done, not in the order of the questions. */
export class RpcConnection {
  readonly #components: ConnectionComponents
  readonly #methods: Methods
  readonly #pending = new Set<Promise<void>>()
  #room: PromiseWithResolvers<void> | null = null

  constructor(components: ConnectionComponents, init: MethodsInit) {
    const { client, clock, send } = components
    this.#components = components
    this.#methods = new Methods({ client, clock, emit: (method, params) => send({ jsonrpc: '2.0', method, params }) }, init)
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
    if (this.#pending.size < MAX_RPC_PENDING) return undefined
    this.#room ??= Promise.withResolvers<void>()
    return this.#room.promise
  }

  /** Resolves when everything that was asked is answered. */
  async idle(): Promise<void> {
    while (this.#pending.size > 0) await Promise.all(this.#pending)
  }

  /** The caller is gone: whatever runs for it is ended. */
  async close(): Promise<void> {
    await this.#methods.close()
  }

  async #answer({ batch, parts }: RpcMessage): Promise<void> {
    if (!batch) return this.#answerOne(parts[0]!)
    const afterwards: (() => void)[] = []
    const responses = await Promise.all(parts.map(async (part) => (isCall(part) ? this.#perform(part, afterwards) : part)))
    const said = responses.filter((response) => response !== null)
    if (said.length > 0) await this.#components.send(said)
    for (const work of afterwards) work()
  }

  async #answerOne(part: RpcCall | RpcResponse): Promise<void> {
    const afterwards: (() => void)[] = []
    const response = isCall(part) ? await this.#perform(part, afterwards) : part
    // Events of what was started stand behind its answer, even where that waits for its reader.
    const sent = response === null ? undefined : this.#components.send(response)
    for (const work of afterwards) work()
    await sent
  }

  /** Null for a notification, which is performed and not answered (JSON-RPC 2.0, 4.1). */
  async #perform({ id, method, params }: RpcCall, afterwards: (() => void)[]): Promise<RpcResponse | null> {
    if (!isMethod(method)) return id === undefined ? null : methodNotFound(id, method, METHODS)
    try {
      const answered = await this.#methods.call(method, params)
      if (answered.afterwards !== undefined) afterwards.push(answered.afterwards)
      return id === undefined ? null : success(id, answered.result)
    } catch (error) {
      if (!isAppError(error)) this.#components.log.error({ err: errorText(error), method }, 'a method failed inside')
      return id === undefined ? null : failure(id, error)
    }
  }
}
