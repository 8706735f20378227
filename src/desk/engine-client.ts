import { unlessAborted } from '../base/abort.ts'
import { type Clock, systemClock } from '../base/clock.ts'
import { AppError, errorText, isAppError } from '../base/errors.ts'
import { FairRateLimiter, TokenBucket } from '../base/rate-limit.ts'
import { dialOwn } from '../base/unix-sockets.ts'
import { type EngineBody, type ModeOverride, type ToEngineBody, readToEngineBody } from '../protocol/desk/messages.ts'
import type { ApprovalRequest, SealedAnswer } from '../protocol/desk/approval-request.ts'
import type { LifecycleEvent } from '../protocol/events/lifecycle.ts'
import {
  DESK_EVENTS,
  DESK_OPEN_MS,
  DESK_OUTPUTS,
  DESK_REQUESTS,
  MAX_DESK_LINE,
  MAX_DESK_UNREAD,
  MAX_TOLD_RUNNING,
} from '../protocol/limits/approvals.ts'
import { DeskChannel } from './desk-channel.ts'
import type { DeskLink, LiveRunSource, WaitNotice } from './desk-link.ts'
import { checkOldModes } from './modes.ts'
import { clientOf } from './approval-request-queue.ts'
import { loadStore, tokenBytes } from './store-format.ts'

export interface DeskSocketLinkInit {
  /** The store, which contains the token. The socket is next to it. */
  readonly approvals: string
  readonly approvalsSocket: string
  readonly name: string
}

const unavailable = (why: string, cause?: unknown): AppError =>
  new AppError('approval_unavailable', `no approval service is running (${why}): start x0xd --init, or x0x desk, as this user`, {
    cause,
  })

const asUnavailable = (error: unknown): AppError =>
  isAppError(error, 'approval_unavailable') ? error : unavailable(errorText(error), error)

/** No service listens, so no session has modes. */
class NoDesk extends AppError {
  constructor(socket: string) {
    const { code, message } = unavailable(`no approval service answers on ${socket}`)
    super(code, message)
  }
}

/** The context of each request is its `onPending`. */
type EngineChannel = DeskChannel<ToEngineBody, (waiting: WaitNotice) => void>

/** Connects an engine to the approval service of another process of this user: on first use, and again after a restart of the service. */
export class DeskSocketLink implements DeskLink {
  readonly #init: DeskSocketLinkInit
  readonly #clock: Clock
  readonly #events: TokenBucket
  readonly #outputs: TokenBucket
  readonly #turns: FairRateLimiter
  readonly #ending = new AbortController()
  #channel: EngineChannel | null = null
  #connecting: Promise<EngineChannel> | null = null
  #key: Uint8Array | null = null
  #runs: LiveRunSource | null = null

  constructor(init: DeskSocketLinkInit, clock: Clock = systemClock) {
    this.#init = init
    this.#clock = clock
    this.#events = new TokenBucket({ clock }, DESK_EVENTS)
    this.#outputs = new TokenBucket({ clock }, DESK_OUTPUTS)
    this.#turns = new FairRateLimiter({ clock }, DESK_REQUESTS)
  }

  async ask(question: ApprovalRequest, signal: AbortSignal, onPending: (waiting: WaitNotice) => void): Promise<SealedAnswer> {
    signal.throwIfAborted()
    try {
      const channel = await this.#connected()
      // Two lines, because the request may be withdrawn.
      await this.#turn(clientOf(question), 2)
      signal.throwIfAborted()
      const { id, reply } = channel.replies.start(onPending)
      this.#send(channel, { type: 'ask', id, question })
      const answer = await unlessAborted(reply, signal).finally(() => {
        if (channel.replies.drop(id)) this.#send(channel, { type: 'withdraw', id })
      })
      this.#key = channel.key
      return answer as SealedAnswer
    } catch (error) {
      throw signal.aborted ? signal.reason : asUnavailable(error)
    }
  }

  event(event: LifecycleEvent): void {
    const channel = this.#channel
    if (channel === null || (event.type === 'exec.output' && (channel.unread > 0 || !this.#outputs.take()))) return
    if (channel.replies.closed === null && this.#events.take()) this.#send(channel, { type: 'event', event })
  }

  serve(runs: LiveRunSource): void {
    this.#runs = runs
  }

  async override(session: string, agent: string | null): Promise<ModeOverride | null> {
    try {
      const channel = await this.#connected()
      await this.#turn(session, 1)
      const { id, reply } = channel.replies.start(() => undefined)
      this.#send(channel, { type: 'override_get', id, session, agent })
      const signal = AbortSignal.timeout(DESK_OPEN_MS)
      return (await unlessAborted(reply, signal).finally(() => channel.replies.drop(id))) as ModeOverride | null
    } catch (error) {
      if (error instanceof NoDesk) return this.#withoutDesk(agent)
      throw asUnavailable(error)
    }
  }

  /** Modes of sessions were lost with a service that was connected, and may have been narrower. */
  async #withoutDesk(agent: string | null): Promise<null> {
    if (this.#channel !== null)
      throw unavailable('the approval service has stopped, and its settings for this session are lost; start x0xd --init or x0x desk again')
    const stored = await loadStore(this.#init.approvals).catch((error: unknown) => {
      if (isAppError(error, 'not_found')) return null
      throw unavailable(errorText(error), error)
    })
    if (stored !== null) checkOldModes(stored.store, agent)
    return null
  }

  approvalKey(): Uint8Array {
    if (this.#key === null) throw unavailable('no approval service has answered yet')
    return this.#key
  }

  /** Fails all pending requests. */
  close(): void {
    this.#ending.abort()
    this.#channel?.close(unavailable('this program is ending'))
  }

  /** Sends no faster than the service accepts lines. Otherwise it would disconnect, which denies all pending requests of this engine. */
  async #turn(client: string, lines: number): Promise<void> {
    if (!(await this.#turns.acquire(client, lines))) throw unavailable('too many approval requests at once; try again in a moment')
  }

  async #connected(): Promise<EngineChannel> {
    if (this.#ending.signal.aborted) throw unavailable('this program is ending')
    if (this.#channel?.replies.closed === null) return this.#channel
    this.#connecting ??= this.#connect().finally(() => (this.#connecting = null))
    this.#channel = await this.#connecting
    return this.#channel
  }

  async #connect(): Promise<EngineChannel> {
    const { approvals, approvalsSocket, name } = this.#init
    try {
      const socket = await dialOwn(approvalsSocket, (problem) => unavailable(problem))
      if (socket === null) throw new NoDesk(approvalsSocket)
      const channel: EngineChannel = await DeskChannel.open({
        socket,
        clock: this.#clock,
        role: 'engine',
        name,
        key: async () => tokenBytes((await loadStore(approvals)).store),
        maxLine: MAX_DESK_LINE,
        read: readToEngineBody,
        refused: 'the approval service refused this program',
        lost: () => unavailable('the approval service has stopped'),
      })
      if (this.#ending.signal.aborted) channel.close(unavailable('this program is ending'))
      else this.#serve(channel)
      return channel
    } catch (error) {
      throw asUnavailable(error)
    }
  }

  #serve(channel: EngineChannel): void {
    void channel.read((body) => this.#take(channel, body)).then(() => this.#runs?.follow([]))
    // A new service does not know the runs of this engine.
    for (const event of this.#runs?.running.slice(-MAX_TOLD_RUNNING) ?? [])
      if (this.#events.take()) this.#send(channel, { type: 'running', event })
  }

  #take({ replies }: EngineChannel, body: Exclude<ToEngineBody, { type: 'error' }>): void {
    switch (body.type) {
      case 'opened':
        return
      case 'follow':
        return this.#runs?.follow(body.runs)
      case 'pending':
        return replies.contextOf(body.id)?.({ question_id: body.question_id, expires_at_ms: body.expires_at_ms })
      case 'answer':
        return void replies.resolve(body.id, body.answer)
      case 'override':
        return void replies.resolve(body.id, body.override)
    }
  }

  #send(channel: EngineChannel, body: EngineBody): void {
    channel.send(body)
    if (channel.unread > MAX_DESK_UNREAD) channel.close(unavailable('the approval service does not accept the request'))
  }
}
