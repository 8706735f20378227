import type { Method } from '../protocol/rexd/methods.ts'
import type { RexdEvent } from '../protocol/rexd/results.ts'
import { toBase64 } from '../protocol/text.ts'
import type { Backoff } from './backoff.ts'
import { type CallInit, Calls, type SendableCall } from './calls.ts'
import { RexdDisconnected, RexdError, RexdProtocolError, textOf } from './errors.ts'
import { parseIncoming, resultOf } from './incoming.ts'
import { orAborted, pause } from './promises.ts'
import { SessionLink } from './session-link.ts'
import type { Transport, TransportFactory } from './transport.ts'

export interface OpenTransportInit {
  onEvent(event: RexdEvent): void
  /** Called for each answer of the server, except those that resume a session. */
  onAnswer(): void
  /** Called once when the transport is lost, but not when this side closes it. */
  onLost(transport: OpenTransport): void
}

/** One open transport. It sends calls as fast as they are taken, and receives answers and events. */
export class OpenTransport {
  readonly #calls: Calls
  readonly #init: OpenTransportInit
  #transport: Transport | null = null
  #closing: Promise<void> | null = null
  #ended = false
  #loss: { readonly error: Error | null } | null = null
  /** The last send is pending. Calls wait until it settles. */
  #behind = false

  constructor(components: { calls: Calls }, init: OpenTransportInit) {
    this.#calls = components.calls
    this.#init = init
  }

  /** How the transport was lost, or null if it was not. */
  get loss(): { readonly error: Error | null } | null {
    return this.#loss
  }

  /** Rejects if the server cannot be reached. */
  async open(factory: TransportFactory, signal: AbortSignal): Promise<void> {
    const events = {
      onMessage: (text: string, content?: Uint8Array) => this.#receive(text, content),
      onClosed: (error: Error | null) => this.#lose(error),
    }
    this.#transport = await factory.open(events, signal)
  }

  /** Sends waiting calls. */
  pump(): void {
    while (this.#transport !== null && !this.#ended && !this.#behind) {
      const call = this.#calls.take(this)
      if (call === null) return
      const sent = sendTo(this.#transport, call)
      if (sent !== undefined) void this.#catchUp(sent)
    }
  }

  /** Pauses or resumes reading. */
  hold(held: boolean): void {
    if (this.#ended) return
    if (held) this.#transport?.pause()
    else this.#transport?.resume()
  }

  /** Whether it was lost or closed. */
  get over(): boolean {
    return this.#ended
  }

  /** Resolves when it is cleaned up. */
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

  #receive(text: string, content: Uint8Array | undefined): void {
    if (this.#ended) return
    try {
      const incoming = parseIncoming(text, content)
      if (incoming.kind === 'unknown_event') return
      if (incoming.kind === 'event') return this.#init.onEvent(incoming.event)
      const method = this.#calls.settle(incoming)
      if (method === null) throw new RexdProtocolError(`an answer to ${incoming.id}, which was not sent`)
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

const sendTo = (transport: Transport, { text, content }: SendableCall): void | Promise<void> => {
  if (content === null) return transport.send(text())
  return transport.sendContent === undefined ? transport.send(text(toBase64(content))) : transport.sendContent(text(), content)
}

/** How full the unread output of a process is. */
export type Fullness = 'room' | 'high' | 'limit'

/**
 * Decides when to stop reading from the connection because output is not consumed. While a caller waits for an answer, which may follow
 * that output, it reads on for a while.
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

  /** Whether reading is paused. */
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

  /** Whether a caller waits for an answer. */
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
/** After a connection has lasted this long, attempts are counted from the first again. */
const STEADY_MS = 30_000

export interface ConnectionComponents {
  readonly transport: TransportFactory
  /** Null if a lost connection is not restored. */
  readonly backoff: Backoff | null
}

export interface ConnectionInit {
  /** Receives events without a listener here, and gaps. */
  onOther(event: RexdEvent): void
  /** Called when the transport is lost or replaced. */
  onConnection(state: ConnectionState): void
}

/** State of the connection. With `again`, it is being restored. Otherwise the next call restores it, if that is enabled. */
export type ConnectionState =
  | { readonly connected: true }
  | { readonly connected: false; readonly loss: RexdDisconnected; readonly again: boolean }

/** The connection to one server. It has successive transports, the sessions that move between them, and the open calls. */
export class Connection {
  readonly gate: ReadGate
  readonly #components: ConnectionComponents
  readonly #init: ConnectionInit
  readonly #calls = new Calls()
  readonly #links = new Map<string, SessionLink>()
  readonly #closing = new AbortController()
  /** Transports that are being closed. */
  readonly #leaving = new Set<Promise<void>>()
  #transport: OpenTransport | null = null
  /** When the transport was opened. */
  #since = 0
  #dialing: Promise<void> | null = null
  /** How the last transport was lost, or null. */
  #loss: RexdDisconnected | null = null

  constructor(components: ConnectionComponents, init: ConnectionInit) {
    this.#components = components
    this.#init = init
    this.gate = new ReadGate({ onHeld: (held) => this.#transport?.hold(held) })
  }

  get connected(): boolean {
    return this.#transport !== null
  }

  /** Whether a lost transport is replaced. */
  get lasting(): boolean {
    return this.#components.backoff !== null
  }

  get closed(): boolean {
    return this.#closing.signal.aborted
  }

  /** Opens the first transport in one attempt. Rejects with `RexdDisconnected`, or with the signal's reason. */
  async open(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted()
    try {
      await orAborted(this.#open(), signal)
    } catch (error) {
      void this.close()
      throw signal?.aborted ? error : new RexdDisconnected(textOf(error), { sent: false, cause: error })
    }
  }

  /** The link of a newly opened session. */
  link(init: { id: string; token: string | null }): SessionLink {
    if (this.#transport === null) throw new RexdProtocolError('a session without a connection')
    if (this.#links.has(init.id)) throw new RexdProtocolError(`the server gave ${init.id} to two sessions`)
    const link = new SessionLink({ ...init, transport: this.#transport })
    this.#links.set(init.id, link)
    return link
  }

  /** The link of a session, or undefined if it was not opened here or has ended. */
  linkOf(sessionId: string): SessionLink | undefined {
    return this.#links.get(sessionId)
  }

  unlink(link: SessionLink, error: RexdDisconnected): void {
    this.#links.delete(link.id)
    link.end(error)
    this.#calls.sweep(error.message, error)
  }

  /** Rejects with `RexdError` if the server refuses, with `RexdDisconnected`, or with the signal's reason. */
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

  /** Rejects all calls, and resolves when the connection is cleaned up. */
  async close(): Promise<void> {
    this.#closing.abort()
    const message = 'the client was closed'
    if (this.#transport !== null) this.#forget(this.#transport, message, undefined)
    this.#endAway(new RexdDisconnected(message, { sent: true }))
    this.#calls.refuse(message, undefined)
    await this.#dialing
    await Promise.all(this.#leaving)
  }

  /** Why no call is possible, or null if one is. */
  #refusal(link: SessionLink | null): string | null {
    if (this.closed) return 'the client is closed'
    if (link !== null && link.loss !== null) return link.loss.message
    return this.#transport === null && !this.lasting ? (this.#loss?.message ?? 'not connected') : null
  }

  /** Sends waiting calls. Opens a new transport if the connection was lost. */
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
      // A call was made or the transport was lost while this ended.
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

  /** Resumes a session on a new transport. Its missed events arrive before its waiting calls are sent. */
  async #resume(link: SessionLink, transport: OpenTransport): Promise<void> {
    // Applies to this transport only, because on the next one the session is resumed again.
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
      // The transport was lost again, and another one is coming.
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
    // A server that breaks the protocol would do so again, so its sessions are not resumed.
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
    // A failed close needs no further action.
    const leaving = transport
      .close()
      .catch(() => undefined)
      .finally(() => this.#leaving.delete(leaving))
    this.#leaving.add(leaving)
  }
}

const wentWith = (loss: RexdDisconnected): RexdDisconnected =>
  new RexdDisconnected(`the session went with its connection: ${loss.message}`, { sent: true, cause: loss.cause })

/** The error for processes of a session that cannot be resumed. */
const notResumed = (error: unknown): RexdDisconnected => {
  const why = error instanceof RexdError ? `the server refuses: ${error.message}` : textOf(error)
  return new RexdDisconnected(`the session could not be come back to: ${why}`, { sent: true, cause: error })
}
