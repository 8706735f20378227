import type { Socket } from 'node:net'

import { systemClock, within, type Clock } from '../base/clock.ts'
import { AppError, errorCodeOf, errorText, isAppError } from '../base/errors.ts'
import { FairTurns } from '../base/fair-turns.ts'
import { dialOwn } from '../base/own-socket.ts'
import { TokenBucket } from '../base/token-bucket.ts'
import { DESK_EVENTS, DESK_OPEN_MS, DESK_OUTPUTS, DESK_REQUESTS, MAX_DESK_LINE, MAX_DESK_UNREAD } from '../protocol/desk-limits.ts'
import { readHello, readToEngineBody, type EngineBody, type ModeOverride, type ToEngineBody } from '../protocol/desk.ts'
import type { LifecycleEvent } from '../protocol/lifecycle.ts'
import { linesOf } from '../protocol/lines.ts'
import type { Question, SignedAnswer } from '../protocol/question.ts'
import type { DeskLink, Waiting } from './desk-link.ts'
import { Seal } from './seal.ts'
import { loadStore } from './store-file.ts'
import { tokenBytes } from './store-shape.ts'
import { callerOf } from './waiting-questions.ts'

export interface DeskSocketLinkInit {
  /** The store, which has the token, and the socket beside it. */
  readonly approvals: string
  readonly approvalsSocket: string
  /** What this engine calls itself. */
  readonly name: string
}

const unavailable = (why: string, cause?: unknown): AppError =>
  new AppError('approval_unavailable', `nobody can be asked whether this may run (${why}): start x0xd, or x0x desk, as this user`, {
    cause,
  })

/** Nobody listens: then nothing is set by anybody. */
class NoDesk extends AppError {
  constructor(socket: string) {
    const { code, message } = unavailable(`no desk answers on ${socket}`)
    super(code, message)
  }
}

/** What waits for a line of the desk. */
interface Asked {
  readonly onPending: (waiting: Waiting) => void
  readonly resolve: (value: SignedAnswer | ModeOverride | null) => void
  readonly reject: (error: AppError) => void
}

/** One connection that is open. */
class EngineConnection {
  readonly key: Uint8Array
  readonly #socket: Socket
  readonly #seal: Seal
  readonly #asked = new Map<number, Asked>()
  #count = 0
  #isOpen = true

  constructor(init: { socket: Socket; seal: Seal; key: Uint8Array; lines: AsyncIterator<Buffer, void, undefined> }) {
    this.key = init.key
    this.#socket = init.socket
    this.#seal = init.seal
    const lost = (error?: unknown): void => this.close(unavailable(error === undefined ? 'the desk went away' : errorText(error)))
    this.#read(init.lines).then(lost, lost)
  }

  get isOpen(): boolean {
    return this.#isOpen
  }

  /** The desk has not read all that it was told. */
  get isBehind(): boolean {
    return this.#socket.writableLength > 0
  }

  close(why: AppError): void {
    this.#isOpen = false
    this.#socket.destroy()
    for (const { reject } of this.#asked.values()) reject(why)
    this.#asked.clear()
  }

  async ask(question: Question, signal: AbortSignal, onPending: (waiting: Waiting) => void): Promise<SignedAnswer> {
    const id = ++this.#count
    const withdraw = (): void => {
      if (this.#asked.delete(id)) this.send({ type: 'withdraw', id })
    }
    return (await this.#wait({ type: 'ask', id, question }, id, onPending, signal, withdraw)) as SignedAnswer
  }

  async override(session: string, agent: string | null, signal: AbortSignal): Promise<ModeOverride | null> {
    const id = ++this.#count
    const request = { type: 'override_get', id, session, agent } as const
    return (await this.#wait(
      request,
      id,
      () => undefined,
      signal,
      () => this.#asked.delete(id),
    )) as ModeOverride | null
  }

  send(body: EngineBody): void {
    if (this.#isOpen) this.#socket.write(this.#seal.line(body))
    if (this.#socket.writableLength > MAX_DESK_UNREAD) this.close(unavailable('the desk does not take what it is asked'))
  }

  async #wait(
    body: EngineBody,
    id: number,
    onPending: Asked['onPending'],
    signal: AbortSignal,
    drop: () => void,
  ): Promise<SignedAnswer | ModeOverride | null> {
    // It may have ended while this waited for its turn: nobody would answer.
    if (!this.#isOpen) throw unavailable('the desk went away')
    const { promise, resolve, reject } = Promise.withResolvers<SignedAnswer | ModeOverride | null>()
    const gone = (): void => {
      drop()
      reject(signal.reason)
    }
    signal.addEventListener('abort', gone, { once: true })
    this.#asked.set(id, { onPending, resolve, reject })
    this.send(body)
    try {
      return await promise
    } finally {
      signal.removeEventListener('abort', gone)
      this.#asked.delete(id)
    }
  }

  async #read(lines: AsyncIterator<Buffer, void, undefined>): Promise<void> {
    for (let next = await lines.next(); next.done !== true; next = await lines.next()) this.#take(bodyOf(this.#seal, next.value))
  }

  #take(body: ToEngineBody): void {
    if (body.type === 'opened') return
    if (body.type === 'error' && body.id === null) throw unavailable(body.message)
    const asked = this.#asked.get(body.id ?? 0)
    switch (body.type) {
      case 'pending':
        return asked?.onPending({ question_id: body.question_id, expires_at_ms: body.expires_at_ms })
      case 'answer':
        return asked?.resolve(body.answer)
      case 'override':
        return asked?.resolve(body.override)
      case 'error': {
        const code = errorCodeOf(body.code)
        return asked?.reject(code === 'approval_unavailable' ? new AppError(code, body.message) : unavailable(body.message))
      }
    }
  }
}

const bodyOf = (seal: Seal, line: Buffer): ToEngineBody => {
  const unsealed = seal.open(line)
  if (unsealed.kind === 'refused') throw unavailable(`what answers is not the desk: ${unsealed.problem}`)
  const body = readToEngineBody(unsealed.body)
  if (typeof body === 'string') throw unavailable(`the desk sent what is none of its lines: ${body}`)
  return body
}

/** The way of an engine to the desk of another process of this user. Connects when it is first needed, and anew when the desk was started again. */
export class DeskSocketLink implements DeskLink {
  readonly #init: DeskSocketLinkInit
  readonly #clock: Clock
  readonly #events: TokenBucket
  readonly #outputs: TokenBucket
  readonly #turns: FairTurns
  readonly #ending = new AbortController()
  #connection: EngineConnection | null = null
  #connecting: Promise<EngineConnection> | null = null
  #key: Uint8Array | null = null

  constructor(init: DeskSocketLinkInit, clock: Clock = systemClock) {
    this.#init = init
    this.#clock = clock
    this.#events = new TokenBucket({ clock }, DESK_EVENTS)
    this.#outputs = new TokenBucket({ clock }, DESK_OUTPUTS)
    this.#turns = new FairTurns({ clock }, DESK_REQUESTS)
  }

  async ask(question: Question, signal: AbortSignal, onPending: (waiting: Waiting) => void): Promise<SignedAnswer> {
    signal.throwIfAborted()
    const connection = await this.#connected()
    // It may be withdrawn, by a line of its own.
    await this.#turn(callerOf(question), 2)
    signal.throwIfAborted()
    const answer = await connection.ask(question, signal, onPending)
    this.#key = connection.key
    return answer
  }

  event(event: LifecycleEvent): void {
    const connection = this.#connection
    if (connection?.isOpen !== true || (event.type === 'exec.output' && (connection.isBehind || !this.#outputs.take()))) return
    if (this.#events.take()) connection.send({ type: 'event', event })
  }

  async override(session: string, agent: string | null): Promise<ModeOverride | null> {
    try {
      const connection = await this.#connected()
      await this.#turn(session, 1)
      return await connection.override(session, agent, AbortSignal.timeout(DESK_OPEN_MS))
    } catch (error) {
      if (error instanceof NoDesk) return this.#saved(agent)
      throw isAppError(error, 'approval_unavailable') ? error : unavailable(errorText(error), error)
    }
  }

  /** Without a desk: what is saved stands in the store. What was set for sessions went with the desk that was there, and may have narrowed. */
  async #saved(agent: string | null): Promise<ModeOverride | null> {
    if (this.#connection !== null)
      throw unavailable('the desk went away, and with it what a human may have set for this session; start x0xd or x0x desk again')
    const stored = await loadStore(this.#init.approvals).catch((error: unknown) => {
      if (isAppError(error, 'not_found')) return null
      throw unavailable(errorText(error), error)
    })
    const modes = stored?.store.modes ?? {}
    return agent !== null && Object.hasOwn(modes, agent) ? (modes[agent] ?? null) : null
  }

  approvalKey(): Uint8Array {
    if (this.#key === null) throw unavailable('no desk has answered yet')
    return this.#key
  }

  /** Whatever waits is given up. */
  close(): void {
    this.#ending.abort()
    this.#connection?.close(unavailable('this program is ending'))
  }

  /** Slower than the desk takes lines: it would hang up, and with that deny what others of this engine wait for. */
  async #turn(caller: string, lines: number): Promise<void> {
    if (!(await this.#turns.take(caller, lines))) throw unavailable('too much is asked of the desk at once, ask again in a moment')
  }

  async #connected(): Promise<EngineConnection> {
    if (this.#ending.signal.aborted) throw unavailable('this program is ending')
    if (this.#connection?.isOpen === true) return this.#connection
    this.#connecting ??= this.#connect().finally(() => (this.#connecting = null))
    this.#connection = await this.#connecting
    return this.#connection
  }

  async #connect(): Promise<EngineConnection> {
    const { approvals, approvalsSocket } = this.#init
    try {
      const socket = await dialOwn(approvalsSocket, (problem) => unavailable(problem))
      if (socket === null) throw new NoDesk(approvalsSocket)
      socket.on('error', () => undefined)
      const connection = await within(this.#clock, DESK_OPEN_MS, this.#open(socket, approvals)).catch((error: unknown) => {
        socket.destroy()
        throw error
      })
      if (connection !== null && !this.#ending.signal.aborted) return connection
      socket.destroy()
      throw unavailable('the desk does not answer')
    } catch (error) {
      throw isAppError(error, 'approval_unavailable') ? error : unavailable(errorText(error), error)
    }
  }

  async #open(socket: Socket, approvals: string): Promise<EngineConnection> {
    const key = tokenBytes((await loadStore(approvals)).store)
    const lines = linesOf(socket as AsyncIterable<Buffer>, MAX_DESK_LINE, () => unavailable('a line of the desk is too long'))
    const first = await lines.next()
    const hello = first.done === true ? 'it closed the connection' : readHello(first.value)
    if (typeof hello === 'string') throw unavailable(`what answers is not the desk: ${hello}`)
    const seal = new Seal({ key, role: 'engine', serverNonce: hello.nonce, side: 'client', now: () => this.#clock.now() })
    socket.write(seal.line({ type: 'open', role: 'engine', name: this.#init.name }))
    const second = await lines.next()
    if (second.done === true) throw unavailable('the desk refused this engine')
    const body = bodyOf(seal, second.value)
    if (body.type === 'error') throw unavailable(body.message)
    if (body.type !== 'opened') throw unavailable('the desk did not open')
    return new EngineConnection({ socket, seal, key, lines })
  }
}
