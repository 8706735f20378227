import { once } from 'node:events'
import { Agent, request, type IncomingMessage } from 'node:http'

import { MAX_EVENTS_WAIT_MS } from '../../src/protocol/limits/rexd.ts'
import type { Home, RexdProcess, WebRexd } from './server.ts'
import type { Wire } from './wire.ts'

interface Message {
  readonly id?: unknown
  readonly method?: string
  readonly params?: { readonly cursor?: number }
  readonly result?: { readonly session_id?: string; readonly protocol?: string } & Partial<EventsAnswer>
  readonly error?: { readonly code: number }
}

interface EventsAnswer {
  readonly events: readonly object[]
  readonly cursor: number
  readonly gap: object | null
}

const UNKNOWN_SESSION = -32_001
/** Concurrent requests, without those that wait for events. */
const AT_ONCE = 128

const listOf = (value: unknown): readonly Message[] => (Array.isArray(value) ? value : [value]) as Message[]

/** Messages of a text, or none if it is not JSON. */
const parsed = (text: string | Uint8Array): readonly Message[] => {
  try {
    return listOf(JSON.parse(typeof text === 'string' ? text : Buffer.from(text).toString()))
  } catch {
    return []
  }
}

/** Sends bodies to POST /rpc. Polls the events of each session while it exists, and reports them as if they were pushed. */
export class HttpWire implements Wire {
  readonly name = 'http'
  readonly closed: Promise<string>
  readonly #server: WebRexd
  /** Whether the server ends with this client. */
  readonly #alone: boolean
  readonly #asking = new Agent({ keepAlive: true, maxSockets: AT_ONCE })
  readonly #waiting = new Agent({ keepAlive: true })
  readonly #left = new AbortController()
  readonly #broken = Promise.withResolvers<string>()
  #listener: (text: string) => void = () => undefined
  #paused: PromiseWithResolvers<void> | null = null

  constructor(server: WebRexd, init = { alone: true }) {
    this.#server = server
    this.#alone = init.alone
    const ended = once(server.process.child, 'close').then(() => `rexd has ended: ${server.process.stderr}`)
    const left = once(this.#left.signal, 'abort').then(() => 'it has left')
    this.closed = Promise.race([ended, left, this.#broken.promise])
  }

  get home(): Home {
    return this.process.home
  }

  get process(): RexdProcess {
    return this.#server.process
  }

  send(message: string | Uint8Array): void {
    void this.#guarded(async () => {
      const text = await this.#post(message, this.#asking)
      if (text === '') return
      for (const { id, result } of parsed(text))
        if (result?.protocol === 'rexd/1') this.#follow(String(result.session_id), this.#cursorIn(message, id))
      this.#listener(text)
    })
  }

  listen(listener: (text: string) => void): void {
    this.#listener = listener
  }

  pause(): void {
    this.#paused ??= Promise.withResolvers()
  }

  resume(): void {
    this.#paused?.resolve()
    this.#paused = null
  }

  async another(): Promise<Wire> {
    return new HttpWire(this.#server, { alone: false })
  }

  async leave(): Promise<void> {
    this.#left.abort()
    for (const agent of [this.#asking, this.#waiting]) agent.destroy()
    if (this.#alone) await this.process.stop()
  }

  /** Cursor of the request with this ID, where its client continues. */
  #cursorIn(message: string | Uint8Array, id: unknown): number {
    return parsed(message).find((one) => one.id === id)?.params?.cursor ?? 0
  }

  #follow(session_id: string, from: number): void {
    void this.#guarded(async () => {
      for (let cursor = from; !this.#left.signal.aborted;) {
        const params = { session_id, cursor, timeout_ms: MAX_EVENTS_WAIT_MS }
        const question = JSON.stringify({ jsonrpc: '2.0', id: 'events', method: 'session.events', params })
        const [answer] = parsed(await this.#post(question, this.#waiting))
        await this.#paused?.promise
        if (answer?.error?.code === UNKNOWN_SESSION) return
        if (answer?.result?.events === undefined) throw new Error(`session.events: ${JSON.stringify(answer)}`)
        const { events, gap } = answer.result
        if (gap) this.#listener(JSON.stringify({ jsonrpc: '2.0', method: 'session.gap', params: { session_id, ...gap } }))
        for (const event of events) this.#listener(JSON.stringify(event))
        cursor = answer.result.cursor ?? cursor
      }
    })
  }

  /** An error before the client has left is reported to those who wait. */
  async #guarded(work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      if (!this.#left.signal.aborted && this.process.running) this.#broken.resolve(String(error))
    }
  }

  /** Text of the answer, or empty if there is none. */
  async #post(body: string | Uint8Array, agent: Agent): Promise<string> {
    const headers = { authorization: `Bearer ${this.#server.token}`, 'content-type': 'application/json' }
    const asked = request(new URL('/rpc', this.#server.url), { method: 'POST', headers, agent, signal: this.#left.signal })
    // The error is reported by the response or to those who wait for it.
    asked.on('error', () => undefined)
    asked.end(body)
    const [response] = (await once(asked, 'response')) as [IncomingMessage]
    const parts: Buffer[] = []
    for await (const part of response as AsyncIterable<Buffer>) parts.push(part)
    const text = Buffer.concat(parts).toString()
    if (response.statusCode === (text === '' ? 204 : 200)) return text
    throw new Error(`POST /rpc: ${response.statusCode} ${text}`)
  }
}
