import type { Socket } from 'node:net'

import { unlessAborted } from '../base/abortable.ts'
import { AppError } from '../base/errors.ts'
import { VERSION } from '../base/version.ts'
import { ASK_ANOTHER, KEPT_EVENT, type Keeper, type KeeperAnswer, type KeeperCall } from '../doors/mcp/staying-tools.ts'
import { isTable, type Fields } from '../protocol/json-table.ts'
import { lifecycleProblem, type LifecycleEvent } from '../protocol/lifecycle.ts'
import { jsonText, linesOf } from '../protocol/lines.ts'
import { MAX_KEEPER_LINE, MAX_MCP_CALL_BYTES } from '../protocol/tool-limits.ts'

/** Of the Model Context Protocol: any that its library speaks. */
const PROTOCOL = '2025-06-18'

const LOST = 'the keeper went away before it answered: exec_list, or the same idempotency_key, tells what became of the command'
const ENDING = 'the server is stopping; what stays goes on, and exec_list of the next server has it'

const BEHIND = 'the keeper of what stays does not take what it is asked: wait until it does, or have x0x mcp --end-kept end it'

export interface KeeperLinkInit {
  readonly dial: KeeperDial
  /** Hears what becomes of commands that stay, while there is a connection; `n` is the keeper's. */
  readonly told?: ((event: LifecycleEvent) => void) | undefined
}

interface Pending extends Pick<KeeperCall, 'progress'> {
  /** Resolves when the next line may be read. */
  answer(message: Fields): Promise<void>
  fail(error: AppError): void
}

/** One connection to a keeper: calls of its tools, as lines of JSON-RPC 2.0. */
class KeeperConnection {
  readonly #socket: Socket
  readonly #told: KeeperLinkInit['told']
  readonly #pending = new Map<number, Pending>()
  #count = 0
  #closed: AppError | null = null

  constructor(init: Pick<KeeperLinkInit, 'told'> & { readonly socket: Socket }) {
    this.#socket = init.socket
    this.#told = init.told
    this.#socket.on('error', () => undefined)
    const params = { protocolVersion: PROTOCOL, capabilities: {}, clientInfo: { name: 'x0x', version: VERSION } }
    this.#send({ id: 0, method: 'initialize', params })
    this.#send({ method: 'notifications/initialized' })
    const lost = (): void => this.close(new AppError('daemon_unreachable', LOST))
    this.#read().then(lost, lost)
  }

  get isOpen(): boolean {
    return this.#closed === null
  }

  async call({ name, args, signal, isGone, progress }: KeeperCall): Promise<KeeperAnswer> {
    signal.throwIfAborted()
    if (this.#closed !== null) throw this.#closed
    if (this.#socket.writableLength > MAX_MCP_CALL_BYTES) throw new AppError('rate_limited', BEHIND)
    const id = ++this.#count
    const { promise: answered, resolve, reject } = Promise.withResolvers<KeeperAnswer>()
    const { promise: taken, resolve: take } = Promise.withResolvers<void>()
    const drop = (): void => {
      if (this.#pending.delete(id) && !isGone()) this.#send({ method: 'notifications/cancelled', params: { requestId: id } })
      take()
      reject(signal.reason as Error)
    }
    signal.addEventListener('abort', drop, { once: true })
    this.#pending.set(id, {
      progress,
      answer: async (message) => {
        this.#pending.delete(id)
        const { result } = message
        if (isTable(result)) resolve({ result, taken: take })
        else reject(new AppError('internal', `the keeper refused the call: ${JSON.stringify(message['error'])}`))
        if (isTable(result)) await taken
      },
      fail: reject,
    })
    this.#send({ id, method: 'tools/call', params: { name, arguments: args, _meta: { progressToken: id } } })
    return answered
  }

  close(why: AppError): void {
    this.#closed ??= why
    this.#socket.destroy()
    for (const { fail } of this.#pending.values()) fail(why)
    this.#pending.clear()
  }

  #send(message: object): void {
    this.#socket.write(`${jsonText({ jsonrpc: '2.0', ...message })}\n`)
  }

  /** One answer at a time: what its caller does not take is not read, and the keeper then makes no more of them. */
  async #read(): Promise<void> {
    const lines = linesOf(
      this.#socket as AsyncIterable<Buffer>,
      MAX_KEEPER_LINE,
      () => new AppError('too_large', 'a line of the keeper is too long'),
    )
    for await (const line of lines) {
      const message: unknown = JSON.parse(line.toString())
      if (!isTable(message)) return
      const { method, params, id } = message
      if (method === 'notifications/progress' && isTable(params))
        this.#pending.get(Number(params['progressToken']))?.progress(Number(params['progress']), String(params['message']))
      if (method === KEPT_EVENT && lifecycleProblem(params) === null) this.#told?.(params as LifecycleEvent)
      if (method === undefined) await this.#pending.get(Number(id))?.answer(message)
    }
  }
}

/** Connects to the keeper, and starts it where `starts` says so and none runs; null: none runs. Throws the signal's reason. */
export type KeeperDial = (starts: boolean, signal: AbortSignal) => Promise<Socket | null>

/** The way to the keeper of one configuration and name. */
export class KeeperLink implements Keeper {
  readonly #init: KeeperLinkInit
  readonly #ending = new AbortController()
  #connection: KeeperConnection | null = null
  /** One after another, so that one connection is made, and one keeper started. */
  #turn: Promise<unknown> = Promise.resolve()

  constructor(init: KeeperLinkInit) {
    this.#init = init
  }

  async call(call: KeeperCall, { starts }: { readonly starts: boolean }): Promise<KeeperAnswer | null> {
    for (;;) {
      const connecting = this.#turn.then(async () => this.#connected(starts, call.signal))
      this.#turn = connecting.catch(() => undefined)
      const connection = await unlessAborted(connecting, call.signal)
      if (connection === null) return null
      const answer = await connection.call(call)
      const { _meta: meta } = answer.result
      if (!isTable(meta) || meta[ASK_ANOTHER] !== true) return answer
      answer.taken()
      // Others may still wait for answers on it.
      if (this.#connection === connection) this.#connection = null
    }
  }

  /** Calls that wait are told that what stays goes on. */
  close(): void {
    const why = new AppError('shutting_down', ENDING)
    this.#ending.abort(why)
    this.#connection?.close(why)
  }

  async #connected(starts: boolean, asked: AbortSignal): Promise<KeeperConnection | null> {
    const { signal } = this.#ending
    asked.throwIfAborted()
    signal.throwIfAborted()
    if (this.#connection?.isOpen === true) return this.#connection
    const socket = await this.#init.dial(starts, signal)
    if (signal.aborted) socket?.destroy()
    signal.throwIfAborted()
    this.#connection = socket && new KeeperConnection({ ...this.#init, socket })
    return this.#connection
  }
}
