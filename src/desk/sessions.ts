import { hasShare } from '../base/bounded-collections.ts'
import { errorText, isAppError } from '../base/errors.ts'
import {
  type EngineBody,
  type ApprovalClientBody,
  type ToEngineBody,
  type ToApprovalClientBody,
  readEngineBody,
  readApprovalClientBody,
} from '../protocol/desk/messages.ts'
import { MAX_DESK_REPLY, MAX_APPROVAL_CLIENT_REQUESTS, MAX_QUESTIONS_OF_ENGINE } from '../protocol/limits/approvals.ts'
import { jsonText } from '../protocol/lines.ts'
import type { ApprovalService } from './approval-service.ts'
import type { DeskRecords } from './history.ts'
import { callerOf } from './approval-request-queue.ts'
import { type EngineRuns, type OutputSubscriptions, type WatcherMessage, isOutput } from './watchers.ts'

/** A question that is not answered yet. */
interface Asked {
  readonly caller: string
  readonly ending: AbortController
}

/** What a proven connection does with a body. A text says what is wrong with it: then the connection ends. */
export interface DeskSession {
  take(body: Uint8Array): string | null
  end(): void
}

/** Serves an engine: it asks, and hears of its own questions alone. */
export class EngineSession implements DeskSession {
  readonly #desk: ApprovalService
  readonly #engine: string
  readonly #send: (body: ToEngineBody) => void
  readonly #asked = new Map<number, Asked>()
  readonly #followed: OutputSubscriptions
  readonly #runs: EngineRuns

  constructor(
    components: { readonly desk: ApprovalService; readonly runs: OutputSubscriptions },
    init: { readonly engine: string; readonly send: (body: ToEngineBody) => void },
  ) {
    this.#desk = components.desk
    this.#engine = init.engine
    this.#send = init.send
    this.#followed = components.runs
    this.#runs = this.#followed.engine((runs) => this.#send({ type: 'follow', runs }))
  }

  take(bytes: Uint8Array): string | null {
    const body = readEngineBody(bytes)
    if (typeof body === 'string') return body
    switch (body.type) {
      case 'open':
        return 'it is open already'
      case 'ask':
        return this.#ask(body)
      case 'withdraw':
        this.#asked.get(body.id)?.ending.abort(new Error('withdrawn'))
        return null
      case 'event':
        this.#runs.heard(body.event)
        this.#desk.event(body.event)
        return null
      case 'running':
        this.#runs.heard(body.event)
        return null
      case 'override_get':
        void this.#override(body)
        return null
    }
  }

  /** Whatever it asked is withdrawn. */
  end(): void {
    this.#followed.gone(this.#runs)
    for (const { ending } of this.#asked.values()) ending.abort(new Error('the engine is gone'))
  }

  #ask({ id, question }: Extract<EngineBody, { type: 'ask' }>): string | null {
    if (this.#asked.has(id)) return 'a question of this id waits already'
    const caller = callerOf(question)
    const own = [...this.#asked.values()].filter((one) => one.caller === caller).length
    if (!hasShare(own, this.#asked.size, MAX_QUESTIONS_OF_ENGINE)) {
      this.#fail(id, 'rate_limited', `as many questions of this caller, or of this engine, wait already as may`)
      return null
    }
    const ending = new AbortController()
    this.#asked.set(id, { caller, ending })
    const pending = (waiting: { question_id: string; expires_at_ms: number }): void => this.#send({ type: 'pending', id, ...waiting })
    void this.#desk
      .ask(question, this.#engine, ending.signal, pending)
      .then((answer) => this.#send({ type: 'answer', id, answer }))
      .catch((error: unknown) => this.#failed(id, error))
      .finally(() => this.#asked.delete(id))
    return null
  }

  async #override({ id, session, agent }: Extract<EngineBody, { type: 'override_get' }>): Promise<void> {
    await this.#desk.modes
      .of(session, agent)
      .then((override) => this.#send({ type: 'override', id, override }))
      .catch((error: unknown) => this.#failed(id, error))
  }

  #failed(id: number, error: unknown): void {
    this.#fail(id, isAppError(error) ? error.code : 'approval_unavailable', errorText(error))
  }

  #fail(id: number, code: string, message: string): void {
    this.#send({ type: 'error', id, code, message, won_by: undefined, decision: undefined })
  }
}

type Request = Exclude<ApprovalClientBody, { type: 'open' }>

export interface ApproverSessionComponents {
  readonly desk: ApprovalService
  readonly records: DeskRecords
  readonly runs: OutputSubscriptions
}

/** Serves a window of a human, who is told of every question and may decide and change. */
export class ApproverSession implements DeskSession {
  readonly #components: ApproverSessionComponents
  readonly #name: string
  readonly #send: (body: ToApprovalClientBody) => void
  #leave: (() => void) | null = null
  #unlisten: (() => void) | null = null
  #going = 0
  #isOver = false

  constructor(components: ApproverSessionComponents, init: { readonly name: string; readonly send: (body: ToApprovalClientBody) => void }) {
    this.#components = components
    this.#name = init.name
    this.#send = init.send
  }

  take(bytes: Uint8Array): string | null {
    const body = readApprovalClientBody(bytes)
    if (typeof body === 'string') return body
    if (body.type === 'open') return 'it is open already'
    if (this.#going >= MAX_APPROVAL_CLIENT_REQUESTS) return 'too many requests wait for their results'
    this.#going += 1
    void this.#answer(body).finally(() => (this.#going -= 1))
    return null
  }

  end(): void {
    this.#isOver = true
    this.#components.runs.follow(this, [])
    this.#leave?.()
    this.#unlisten?.()
  }

  async #answer(body: Request): Promise<void> {
    const { id } = body
    try {
      const result = await this.#do(body)
      const fits = Buffer.byteLength(jsonText(JSON.stringify(result))) < MAX_DESK_REPLY - SEAL_BYTES
      if (fits) this.#send({ type: 'result', id, result: { ...result } })
      else this.#fail(id, 'resource_limit', 'the answer is too large for one line: read the file itself')
    } catch (error) {
      const data = isAppError(error) ? error.data : {}
      const told = (key: string): string | undefined => (typeof data[key] === 'string' ? data[key] : undefined)
      this.#fail(id, isAppError(error) ? error.code : 'internal', errorText(error), told('won_by'), told('decision'))
    }
  }

  async #do(body: Request): Promise<object> {
    const { desk, records, runs } = this.#components
    switch (body.type) {
      case 'subscribe':
        if (!this.#isOver) this.#leave ??= desk.watch({ emit: (news) => this.#hears(news) && this.#send(news) })
        return desk.waiting
      case 'listen':
        // Whoever watches hears it already.
        if (!this.#isOver) this.#unlisten ??= desk.listen({ emit: (news) => this.#leave === null && !isOutput(news) && this.#send(news) })
        return {}
      case 'follow':
        if (!this.#isOver) runs.follow(this, body.runs)
        return records.running(runs.running)
      case 'pending':
        return desk.waiting
      case 'decide': {
        const { grant_id } = await desk.decide(body, this.#name)
        return { question_id: body.question_id, decision: body.decision, grant_id }
      }
      case 'modes_get':
        return records.modes(body.session, body.agent)
      case 'modes_list':
        return records.allModes()
      case 'modes_set':
        await desk.modes.set(body.session, body.override, `human:${this.#name}`)
        return records.modes(body.session, null)
      case 'modes_save':
        await desk.modes.save(body.agent, body.row, `human:${this.#name}`)
        return records.modes(null, body.agent)
      case 'store':
      case 'grants':
      case 'revoke':
      case 'allowlist_add':
      case 'allowlist_remove':
      case 'history':
        return records.answer(body, `human:${this.#name}`)
    }
  }

  /** What a run writes only while it follows that one. */
  #hears(news: WatcherMessage): boolean {
    return !isOutput(news) || this.#components.runs.isFollowed(this, news.event)
  }

  #fail(id: number, code: string, message: string, wonBy?: string, decision?: string): void {
    this.#send({ type: 'error', id, code, message, won_by: wonBy, decision })
  }
}

/** What stands around a result in its line. */
const SEAL_BYTES = 1_024
