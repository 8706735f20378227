import type { Method } from '../protocol/rexd/methods.ts'
import type { RexdEvent } from '../protocol/rexd/results.ts'
import type { Backoff } from './backoff.ts'
import { type CallInit, Calls } from './calls.ts'
import { RexdDisconnected, RexdError, RexdProtocolError, textOf } from './errors.ts'
import { parseIncoming, resultOf } from './incoming.ts'
import { orAborted, pause } from './promises.ts'
import { SessionLink } from './session-link.ts'
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
  #ended = false
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
    while (this.#transport !== null && !this.#ended && !this.#behind) {
      const text = this.#calls.take(this)
      if (text === null) return
      const sent = this.#transport.send(text)
      if (sent !== undefined) void this.#catchUp(sent)
    }
  }

  /** Stops reading, or goes on. */
  hold(held: boolean): void {
    if (this.#ended) return
    if (held) this.#transport?.pause()
    else this.#transport?.resume()
  }

  /** It was lost or closed: nothing is sent or taken any more. */
  get over(): boolean {
    return this.#ended
  }

  /** Resolves when nothing is left of it. */
  async close(): Promise<void> {
    this.#ended = true
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
    if (this.#ended) return
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
    if (this.#ended) return
    this.#ended = true
    this.#loss = { error }
    this.#init.onLost(this)
  }
}

/** How much of the output of a process waits to be read. */
export type Fullness = 'room' | 'high' | 'limit'

/**
 * Says when nothing more is to be read from the connection: some output is not read by whoever asked for it. An answer
 * that somebody waits for stands behind that output, so reading goes on for it a little longer.
 */
export class ReadGate {
  readonly #onHeld: (held: boolean) => void
  readonly #high = new Set<object>()
  readonly #atLimit = new Set<object>()
  #expecting = false
  #held = false

  constructor(init: { onHeld: (held: boolean) => void }) {
    this.#onHeld = init.onHeld
  }

  /** Nothing is to be read now. */
  get held(): boolean {
    return this.#held
  }

  set(queue: object, fullness: Fullness): void {
    this.#high.delete(queue)
    this.#atLimit.delete(queue)
    if (fullness !== 'room') this.#high.add(queue)
    if (fullness === 'limit') this.#atLimit.add(queue)
    this.#check()
  }

  /** Somebody waits for an answer. */
  expect(expecting: boolean): void {
    this.#expecting = expecting
    this.#check()
  }

  #check(): void {
    const held = this.#atLimit.size > 0 || (this.#high.size > 0 && !this.#expecting)
    if (held === this.#held) return
    this.#held = held
    this.#onHeld(held)
  }
}

const ENDED = 'the server ended the connection'
/** A connection that was good for so long is no sign that the next will be lost too: tries are counted from the first again. */
const STEADY_MS = 30_000

export interface ConnectionComponents {
  readonly transport: TransportFactory
  /** Null: what is lost is lost. */
  readonly backoff: Backoff | null
}

export interface ConnectionInit {
  /** Events that are for nobody here, and gaps. */
  onOther(event: RexdEvent): void
  /** The transport was lost, or there is another. */
  onConnection(state: ConnectionState): void
}

/** How the connection stands: it is there, or was lost. `again`: it is being made again; else the next call does, if any. */
export type ConnectionState =
  | { readonly connected: true }
  | { readonly connected: false; readonly loss: RexdDisconnected; readonly again: boolean }

/** The way to one server: one transport after the other, the sessions that go from one to the next, and what was asked and not answered yet. */
export class Connection {
  readonly gate: ReadGate
  readonly #components: ConnectionComponents
  readonly #init: ConnectionInit
  readonly #calls = new Calls()
  readonly #links = new Map<string, SessionLink>()
  readonly #closing = new AbortController()
  /** Transports that are being cleared away. */
  readonly #leaving = new Set<Promise<void>>()
  #transport: OpenTransport | null = null
  /** When it was opened. */
  #since = 0
  #dialing: Promise<void> | null = null
  /** Why there is no transport. */
  #loss: RexdDisconnected | null = null

  constructor(components: ConnectionComponents, init: ConnectionInit) {
    this.#components = components
    this.#init = init
    this.gate = new ReadGate({ onHeld: (held) => this.#transport?.hold(held) })
  }

  get connected(): boolean {
    return this.#transport !== null
  }

  /** A transport that is lost is followed by another. */
  get lasting(): boolean {
    return this.#components.backoff !== null
  }

  get closed(): boolean {
    return this.#closing.signal.aborted
  }

  /** The first transport, in one try. Rejects with `RexdDisconnected`, or with the signal's reason. */
  async open(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted()
    try {
      await orAborted(this.#open(), signal)
    } catch (error) {
      void this.close()
      throw signal?.aborted ? error : new RexdDisconnected(textOf(error), { sent: false, cause: error })
    }
  }

  /** What a session that was just opened is bound to. */
  link(init: { id: string; token: string | null }): SessionLink {
    if (this.#transport === null) throw new RexdProtocolError('a session without a connection')
    if (this.#links.has(init.id)) throw new RexdProtocolError(`the server gave ${init.id} to two sessions`)
    const link = new SessionLink({ ...init, transport: this.#transport })
    this.#links.set(init.id, link)
    return link
  }

  /** Of the session of that id; undefined where it was not opened here, or is over. */
  linkOf(sessionId: string): SessionLink | undefined {
    return this.#links.get(sessionId)
  }

  /** The session is over. */
  unlink(link: SessionLink, error: RexdDisconnected): void {
    this.#links.delete(link.id)
    link.end(error)
    this.#calls.sweep(error.message, error)
  }

  /** Rejects with `RexdError` where the server refuses, with `RexdDisconnected`, or with the signal's reason. */
  async request<M extends Method, T>(init: CallInit<M, T>): Promise<T> {
    const why = this.#refusal(init.scope instanceof SessionLink ? init.scope : null)
    if (why !== null) throw new RexdDisconnected(`${init.method}: ${why}`, { sent: false, cause: this.#loss ?? undefined })
    const answer = this.#calls.add(init)
    this.#push()
    try {
      return await answer
    } finally {
      this.#expect()
    }
  }

  /** Refuses whatever waits; resolves when nothing is left of the connection. */
  async close(): Promise<void> {
    this.#closing.abort()
    const message = 'the client was closed'
    if (this.#transport !== null) this.#forget(this.#transport, message, undefined)
    this.#endAway(new RexdDisconnected(message, { sent: true }))
    this.#calls.refuse(message, undefined)
    await this.#dialing
    await Promise.all(this.#leaving)
  }

  /** Why nothing can be asked; null where it can. */
  #refusal(link: SessionLink | null): string | null {
    if (this.closed) return 'the client is closed'
    if (link !== null && link.loss !== null) return link.loss.message
    return this.#transport === null && !this.lasting ? (this.#loss?.message ?? 'there is no connection') : null
  }

  /** What waits is sent, by a new transport where there is none. */
  #push(): void {
    if (this.#transport === null) this.#redial()
    else this.#transport.pump()
    this.#expect()
  }

  #expect(): void {
    this.gate.expect(this.#calls.expecting)
  }

  /** Sessions that wait for a transport. */
  get #away(): readonly SessionLink[] {
    return [...this.#links.values()].filter(({ away }) => away)
  }

  #redial(): void {
    this.#dialing ??= this.#dial().finally(() => {
      this.#dialing = null
      // Something was asked, or the transport was lost, while this came to its end.
      if (this.#transport === null && !this.closed && (this.#calls.waiting || this.#away.length > 0)) this.#redial()
    })
  }

  async #dial(): Promise<void> {
    const { backoff } = this.#components
    if (backoff === null) return
    let error: unknown = this.#loss
    for (let delay = backoff.next(); delay !== null; delay = backoff.next()) {
      await pause(delay, this.#closing.signal)
      if (this.closed) return
      try {
        await this.#open()
        this.#init.onConnection({ connected: true })
        this.#push()
        return
      } catch (failed) {
        error = failed
      }
    }
    backoff.reset()
    this.#endAway(notResumed(error))
    this.#calls.refuse(textOf(error), error)
  }

  async #open(): Promise<void> {
    const transport = new OpenTransport(
      { calls: this.#calls },
      {
        onEvent: (event) => this.#hear(event),
        onAnswer: () => this.#components.backoff?.reset(),
        onLost: (lost) => this.#lost(lost),
      },
    )
    await transport.open(this.#components.transport, this.#closing.signal)
    if (transport.over || this.closed) {
      this.#leave(transport)
      throw transport.loss?.error ?? new Error(ENDED)
    }
    this.#transport = transport
    this.#since = performance.now()
    if (this.gate.held) transport.hold(true)
    for (const link of this.#away) void this.#resume(link, transport)
  }

  /** Goes on with a session on a new transport: first what it has said meanwhile, then what waits to be asked of it. */
  async #resume(link: SessionLink, transport: OpenTransport): Promise<void> {
    // For this transport alone: over the next one the session is resumed anew.
    const scope = {
      lasting: false,
      get transport(): object | null {
        return transport.over ? null : transport
      },
    }
    const accept = (result: unknown): void => {
      resultOf(result, 'session.resume', ['session_id'])
      link.arrive(transport)
    }
    try {
      await this.#calls.add({ method: 'session.resume', params: link.resumption, scope, accept })
      this.#push()
    } catch (error) {
      // The transport is lost again, and another is on its way.
      if (!(error instanceof RexdDisconnected)) this.unlink(link, notResumed(error))
    }
  }

  #hear(event: RexdEvent): void {
    this.#components.backoff?.reset()
    const heard = this.#links.get(event.params.session_id)?.hear(event) ?? false
    if (!heard && !(event.method === 'exec.waiting' && this.#calls.waits(event.params))) this.#init.onOther(event)
  }

  #lost(transport: OpenTransport): void {
    if (transport !== this.#transport) return
    const { backoff } = this.#components
    const error = transport.loss?.error ?? undefined
    const message = error?.message ?? ENDED
    if (performance.now() - this.#since > STEADY_MS) backoff?.reset()
    const loss = this.#forget(transport, message, error)
    const again = backoff !== null && (this.#calls.waiting || this.#away.length > 0)
    this.#init.onConnection({ connected: false, loss, again })
    if (backoff === null) this.#calls.refuse(message, error)
    else if (again) this.#redial()
  }

  #forget(transport: OpenTransport, message: string, cause: Error | undefined): RexdDisconnected {
    this.#transport = null
    const loss = new RexdDisconnected(message, { sent: true, cause })
    this.#loss = loss
    this.#leave(transport)
    // A server that broke the protocol would do so again: its sessions are not resumed.
    const isFinal = this.closed || !this.lasting || cause instanceof RexdProtocolError
    for (const link of this.#links.values()) {
      if (isFinal) link.end(wentWith(loss))
      else link.leave(wentWith(loss))
      if (link.loss !== null) this.#links.delete(link.id)
    }
    this.#calls.lose(message, cause)
    this.#expect()
    return loss
  }

  #endAway(error: RexdDisconnected): void {
    for (const link of this.#away) this.unlink(link, error)
  }

  #leave(transport: OpenTransport): void {
    // A close that fails leaves nothing to be done either.
    const leaving = transport
      .close()
      .catch(() => undefined)
      .finally(() => this.#leaving.delete(leaving))
    this.#leaving.add(leaving)
  }
}

const wentWith = (loss: RexdDisconnected): RexdDisconnected =>
  new RexdDisconnected(`the session went with its connection: ${loss.message}`, { sent: true, cause: loss.cause })

/** What the processes of a session hear that cannot be gone on with. */
const notResumed = (error: unknown): RexdDisconnected => {
  const why = error instanceof RexdError ? `the server refuses: ${error.message}` : textOf(error)
  return new RexdDisconnected(`the session could not be come back to: ${why}`, { sent: true, cause: error })
}
