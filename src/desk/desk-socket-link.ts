import type { Socket } from 'node:net'

import { systemClock, within, type Clock } from '../base/clock.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import { FairTurns } from '../base/fair-turns.ts'
import { dialOwn } from '../base/own-socket.ts'
import { TokenBucket } from '../base/token-bucket.ts'
import { DESK_EVENTS, DESK_OPEN_MS, DESK_OUTPUTS, DESK_REQUESTS, MAX_DESK_LINE, MAX_TOLD_RUNNING } from '../protocol/desk-limits.ts'
import { readHello, type ModeOverride } from '../protocol/desk.ts'
import type { LifecycleEvent } from '../protocol/lifecycle.ts'
import { linesOf } from '../protocol/lines.ts'
import type { Question, SealedAnswer } from '../protocol/question.ts'
import { checkOldModes } from './desk-modes.ts'
import type { DeskLink, RunsFollowed, Waiting } from './desk-link.ts'
import { bodyOf, EngineConnection, unavailable } from './engine-connection.ts'
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

/** Nobody listens: then nothing is set by anybody. */
class NoDesk extends AppError {
  constructor(socket: string) {
    const { code, message } = unavailable(`no desk answers on ${socket}`)
    super(code, message)
  }
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
  #runs: RunsFollowed | null = null

  constructor(init: DeskSocketLinkInit, clock: Clock = systemClock) {
    this.#init = init
    this.#clock = clock
    this.#events = new TokenBucket({ clock }, DESK_EVENTS)
    this.#outputs = new TokenBucket({ clock }, DESK_OUTPUTS)
    this.#turns = new FairTurns({ clock }, DESK_REQUESTS)
  }

  async ask(question: Question, signal: AbortSignal, onPending: (waiting: Waiting) => void): Promise<SealedAnswer> {
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

  serve(runs: RunsFollowed): void {
    this.#runs = runs
  }

  async override(session: string, agent: string | null): Promise<ModeOverride | null> {
    try {
      const connection = await this.#connected()
      await this.#turn(session, 1)
      return await connection.override(session, agent, AbortSignal.timeout(DESK_OPEN_MS))
    } catch (error) {
      if (error instanceof NoDesk) return this.#withoutDesk(agent)
      throw isAppError(error, 'approval_unavailable') ? error : unavailable(errorText(error), error)
    }
  }

  /** Without a desk nothing is set. What was set for sessions went with the desk that was there, and may have narrowed. */
  async #withoutDesk(agent: string | null): Promise<null> {
    if (this.#connection !== null)
      throw unavailable('the desk went away, and with it what a human may have set for this session; start x0xd --init or x0x desk again')
    const stored = await loadStore(this.#init.approvals).catch((error: unknown) => {
      if (isAppError(error, 'not_found')) return null
      throw unavailable(errorText(error), error)
    })
    if (stored !== null) checkOldModes(stored.store, agent)
    return null
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
      if (connection !== null && !this.#ending.signal.aborted) return this.#told(connection)
      socket.destroy()
      throw unavailable('the desk does not answer')
    } catch (error) {
      throw isAppError(error, 'approval_unavailable') ? error : unavailable(errorText(error), error)
    }
  }

  /** A desk that begins does not know what goes on. */
  #told(connection: EngineConnection): EngineConnection {
    for (const event of this.#runs?.running.slice(-MAX_TOLD_RUNNING) ?? [])
      if (this.#events.take()) connection.send({ type: 'running', event })
    return connection
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
    return new EngineConnection({ socket, seal, key, lines, onFollow: (runs) => this.#runs?.follow(runs) })
  }
}
