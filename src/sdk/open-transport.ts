import type { RexdEvent } from '../protocol/rexd-answers.ts'
import type { Calls } from './calls.ts'
import { RexdProtocolError } from './errors.ts'
import { parseIncoming } from './incoming.ts'
import type { Transport, TransportFactory } from './transport.ts'

export interface OpenTransportInit {
  onEvent(event: RexdEvent): void
  /** The server has answered something; that a session goes on is not counted. */
  onAnswer(): void
  /** Nothing more comes by this transport; once, and not when it is closed from here. */
  onLost(transport: OpenTransport): void
}

/** One opened transport: calls go out as fast as it takes them, answers and events come in. */
export class OpenTransport {
  readonly #calls: Calls
  readonly #init: OpenTransportInit
  #transport: Transport | null = null
  #closing: Promise<void> | null = null
  #over = false
  #loss: { readonly error: Error | null } | null = null
  /** What was sent last has not settled: nothing more is sent before it does. */
  #behind = false

  constructor(components: { calls: Calls }, init: OpenTransportInit) {
    this.#calls = components.calls
    this.#init = init
  }

  /** How it was lost; null while it was not. */
  get loss(): { readonly error: Error | null } | null {
    return this.#loss
  }

  /** Rejects where there is no way to the server. */
  async open(factory: TransportFactory, signal: AbortSignal): Promise<void> {
    const events = { onMessage: (text: string) => this.#receive(text), onClosed: (error: Error | null) => this.#lose(error) }
    this.#transport = await factory.open(events, signal)
  }

  /** Sends what waits to be sent. */
  pump(): void {
    while (this.#transport !== null && !this.#over && !this.#behind) {
      const text = this.#calls.take(this)
      if (text === null) return
      const sent = this.#transport.send(text)
      if (sent !== undefined) void this.#catchUp(sent)
    }
  }

  /** Stops reading, or goes on. */
  hold(held: boolean): void {
    if (this.#over) return
    if (held) this.#transport?.pause()
    else this.#transport?.resume()
  }

  /** It was lost or closed: nothing is sent or taken any more. */
  get over(): boolean {
    return this.#over
  }

  /** Resolves when nothing is left of it. */
  async close(): Promise<void> {
    this.#over = true
    this.#closing ??= this.#transport?.close() ?? null
    await this.#closing
  }

  async #catchUp(sent: Promise<void>): Promise<void> {
    this.#behind = true
    await sent
    this.#behind = false
    this.pump()
  }

  #receive(text: string): void {
    if (this.#over) return
    try {
      const incoming = parseIncoming(text)
      if (incoming.kind === 'unknown_event') return
      if (incoming.kind === 'event') return this.#init.onEvent(incoming.event)
      const method = this.#calls.settle(incoming)
      if (method === null) throw new RexdProtocolError(`an answer to ${incoming.id}, which nobody asked`)
      if (method !== 'session.resume') this.#init.onAnswer()
    } catch (error) {
      this.#lose(error as Error)
    }
  }

  #lose(error: Error | null): void {
    if (this.#over) return
    this.#over = true
    this.#loss = { error }
    this.#init.onLost(this)
  }
}
