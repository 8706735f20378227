import assert from 'node:assert/strict'
import { join } from 'node:path'

import { ProcessLog, type RpcEvent } from './process-log.ts'
import type { Home, RexdProcess } from './server.ts'
import type { Wire } from './wire.ts'

export type Params = Readonly<Record<string, unknown>>
export type Result = Readonly<Record<string, unknown>>

export interface RpcFailure {
  readonly code: number
  readonly message: string
  readonly data: Readonly<Record<string, unknown>>
}

/** One answer, and its position among all received messages. */
export interface Reply {
  readonly at: number
  readonly id: unknown
  readonly result?: Result
  readonly error?: RpcFailure
}

/** A client of REXD that uses only JSON-RPC. */
export class Peer {
  readonly #wire: Wire
  readonly #waiting = new Map<unknown, PromiseWithResolvers<Reply>>()
  readonly #logs = new Map<string, ProcessLog>()
  readonly #strays: unknown[] = []
  readonly #strayWaiters: ((stray: unknown) => void)[] = []
  /** Received texts that are not JSON-RPC. */
  readonly violations: string[] = []
  /** IDs of the sessions that this client opened. */
  readonly #known = new Set<string>()
  readonly #gaps: RpcEvent[] = []
  /** Notifications that a call waits for an approver. */
  readonly waits: RpcEvent['params'][] = []
  #at = 0
  #lastId = 0

  constructor(wire: Wire) {
    this.#wire = wire
    wire.listen((text) => this.#receive(text))
    void wire.closed.then((how) => this.#closed(how))
  }

  get home(): Home {
    return this.#wire.home
  }

  get process(): RexdProcess {
    return this.#wire.process
  }

  /** Name of the transport. */
  get name(): string {
    return this.#wire.name
  }

  /** Resolves with the reason when the connection is gone. */
  get closed(): Promise<string> {
    return this.#wire.closed
  }

  /** Events that the server reported as missed. */
  get gaps(): readonly RpcEvent[] {
    return this.#gaps
  }

  /** Another client of the same server. */
  async another(): Promise<Peer> {
    return new Peer(await this.#wire.another())
  }

  /** Number of received messages. */
  get received(): number {
    return this.#at
  }

  async ask(method: string, params?: Params, id: unknown = ++this.#lastId): Promise<Reply> {
    const answered = this.answerTo(id)
    this.raw(JSON.stringify({ jsonrpc: '2.0', id, method, ...(params === undefined ? {} : { params }) }))
    return answered
  }

  /** Waits for the answer to a request that is sent separately. */
  async answerTo(id: unknown): Promise<Reply> {
    const waiting = Promise.withResolvers<Reply>()
    this.#waiting.set(id, waiting)
    return waiting.promise
  }

  /** Sends an invalid request and waits for the answer with this ID. */
  async answered(message: object, id: unknown): Promise<Reply> {
    const reply = this.answerTo(id)
    this.raw(JSON.stringify(message))
    return reply
  }

  /** Returns the result, or throws if there is none. */
  async call<T = Result>(method: string, params?: Params): Promise<T> {
    const { result, error } = await this.ask(method, params)
    if (error !== undefined) throw new Error(`${method}: ${JSON.stringify(error)}`)
    return result as T
  }

  /** Returns the error, which must have this code. */
  async failure(code: number, method: string, params?: Params): Promise<RpcFailure> {
    const { result, error } = await this.ask(method, params)
    assert.ok(error, `${method} answered ${JSON.stringify(result)?.slice(0, 300)} instead of ${code}`)
    assert.equal(error.code, code, `${method}: ${JSON.stringify(error)}`)
    return error
  }

  notify(method: string, params?: Params): void {
    this.raw(JSON.stringify({ jsonrpc: '2.0', method, ...(params === undefined ? {} : { params }) }))
  }

  raw(message: string | Uint8Array): void {
    this.#wire.send(message)
  }

  /** The next message without a waiting request: an answer without an ID, or to a batch. */
  async stray<T = Reply>(): Promise<T> {
    if (this.#strays.length > 0) return this.#strays.shift() as T
    return new Promise((resolve) => this.#strayWaiters.push(resolve as (stray: unknown) => void))
  }

  get strays(): readonly unknown[] {
    return this.#strays
  }

  /** All events of a process, from the first on. */
  log(processId: unknown): ProcessLog {
    const id = String(processId)
    const log = this.#logs.get(id) ?? new ProcessLog(id)
    this.#logs.set(id, log)
    return log
  }

  /** Opens a session whose only root is a new directory. */
  async session(params: Params = {}): Promise<Session> {
    const dir = await this.home.newDirectory()
    const opened = await this.call('session.open', { client_name: 'test', workspace_roots: [dir], ...params })
    return new Session(this, opened, dir)
  }

  pause(): void {
    this.#wire.pause()
  }

  resume(): void {
    this.#wire.resume()
  }

  /** Closes every session, so that it does not disturb later tests. */
  async tidy(): Promise<void> {
    const sessions = [...this.#known]
    this.#known.clear()
    await Promise.all(sessions.map(async (session_id) => this.ask('session.close', { session_id })))
  }

  /** Leaves, and checks that all received messages followed the protocol. */
  async close(): Promise<void> {
    await this.#wire.leave()
    assert.deepEqual(this.violations, [])
  }

  #receive(text: string): void {
    const at = ++this.#at
    let message: unknown
    try {
      message = JSON.parse(text)
    } catch {
      return void this.violations.push(text.slice(0, 200))
    }
    for (const one of Array.isArray(message) ? (message as Reply[]) : [message as Reply])
      if (one.result?.['protocol'] === 'rexd/1') this.#known.add(String(one.result['session_id']))
    if (Array.isArray(message)) return this.#stray(message)
    const { jsonrpc, method, id, params } = message as { jsonrpc: unknown; method?: string; id?: unknown; params: RpcEvent['params'] }
    if (jsonrpc !== '2.0') this.violations.push(text.slice(0, 200))
    if (method === 'session.gap') return void this.#gaps.push({ at, method, params })
    if (method === 'exec.waiting') return void this.waits.push(params)
    if (method !== undefined) return this.log(params.process_id).add({ at, method, params })
    const waiting = this.#waiting.get(id)
    if (waiting === undefined) return this.#stray({ ...(message as Reply), at })
    this.#waiting.delete(id)
    waiting.resolve({ ...(message as Reply), at })
  }

  /** Requests that still wait fail with the reason. */
  #closed(how: string): void {
    for (const waiting of this.#waiting.values()) waiting.reject(new Error(how))
    for (const log of this.#logs.values()) log.lost(how)
  }

  #stray(message: unknown): void {
    const waiter = this.#strayWaiters.shift()
    if (waiter === undefined) this.#strays.push(message)
    else waiter(message)
  }
}

/** A session and its directory. Its calls include the session ID. */
export class Session {
  readonly peer: Peer
  readonly id: string
  readonly dir: string
  /** Answer to session.open. */
  readonly opened: Result

  constructor(peer: Peer, opened: Result, dir: string) {
    this.peer = peer
    this.opened = opened
    this.id = String(opened['session_id'])
    this.dir = dir
  }

  path(name: string): string {
    return join(this.dir, name)
  }

  async call<T = Result>(method: string, params: Params = {}): Promise<T> {
    return this.peer.call<T>(method, { session_id: this.id, ...params })
  }

  async failure(code: number, method: string, params: Params = {}): Promise<RpcFailure> {
    return this.peer.failure(code, method, { session_id: this.id, ...params })
  }

  /** Starts a program. Returns its log. */
  async start(params: Params): Promise<ProcessLog> {
    const { process_id } = await this.call('exec.start', params)
    return this.peer.log(process_id)
  }

  /** Starts the text in a shell. */
  async shell(command: string, params: Params = {}): Promise<ProcessLog> {
    return this.start({ shell: true, command, ...params })
  }

  async wait(log: ProcessLog, params: Params = {}): Promise<Result> {
    return this.call('exec.wait', { process_id: log.id, ...params })
  }

  async close(): Promise<Result> {
    return this.call('session.close')
  }
}
