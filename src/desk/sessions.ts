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
import { clientOf } from './approval-request-queue.ts'
import { type OutputSubscriptions, type EngineRuns, type WatcherMessage, isOutput } from './watchers.ts'
import type { ApprovalService } from './approval-service.ts'
import type { DeskRecords } from './history.ts'

/** What sessions of both roles share. */
export interface DeskSessionDeps {
  readonly desk: ApprovalService
  readonly records: DeskRecords
  /** Running runs of all engines, and the clients that follow them. */
  readonly runs: OutputSubscriptions
}

/** A request that is not answered yet. */
interface Asked {
  readonly client: string
  readonly ending: AbortController
}

/** The session of an authenticated connection. `take` returns null, or a problem that ends the connection. */
export interface DeskSession {
  take(body: Uint8Array): string | null
  end(): void
}

/** Serves an engine, which sends requests and receives the answers to its own requests only. */
export class EngineSession implements DeskSession {
  readonly #deps: Pick<DeskSessionDeps, 'desk' | 'runs'>
  readonly #init: { readonly engine: string; readonly send: (body: ToEngineBody) => void }
  readonly #asked = new Map<number, Asked>()
  readonly #runs: EngineRuns

  constructor(
    deps: Pick<DeskSessionDeps, 'desk' | 'runs'>,
    init: { readonly engine: string; readonly send: (body: ToEngineBody) => void },
  ) {
    this.#deps = deps
    this.#init = init
    this.#runs = deps.runs.engine((runs) => init.send({ type: 'follow', runs }))
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
        this.#runs.onEvent(body.event)
        this.#deps.desk.event(body.event)
        return null
      case 'running':
        this.#runs.onEvent(body.event)
        return null
      case 'override_get':
        void this.#override(body)
        return null
    }
  }

  /** Withdraws all pending requests. */
  end(): void {
    this.#deps.runs.disconnected(this.#runs)
    for (const { ending } of this.#asked.values()) ending.abort(new Error('the engine has disconnected'))
  }

  #ask({ id, question }: Extract<EngineBody, { type: 'ask' }>): string | null {
    if (this.#asked.has(id)) return 'an approval request with this ID is open already'
    const client = clientOf(question)
    const own = [...this.#asked.values()].filter((one) => one.client === client).length
    if (!hasShare(own, this.#asked.size, MAX_QUESTIONS_OF_ENGINE)) {
      this.#fail(id, 'rate_limited', `this client, or this program, has too many open approval requests`)
      return null
    }
    const ending = new AbortController()
    this.#asked.set(id, { client, ending })
    const pending = (waiting: { question_id: string; expires_at_ms: number }): void => this.#init.send({ type: 'pending', id, ...waiting })
    void this.#deps.desk
      .ask(question, this.#init.engine, ending.signal, pending)
      .then((answer) => this.#init.send({ type: 'answer', id, answer }))
      .catch((error: unknown) => this.#failed(id, error))
      .finally(() => this.#asked.delete(id))
    return null
  }

  async #override({ id, session, agent }: Extract<EngineBody, { type: 'override_get' }>): Promise<void> {
    await this.#deps.desk.modes
      .of(session, agent)
      .then((override) => this.#init.send({ type: 'override', id, override }))
      .catch((error: unknown) => this.#failed(id, error))
  }

  #failed(id: number, error: unknown): void {
    this.#fail(id, isAppError(error) ? error.code : 'approval_unavailable', errorText(error))
  }

  #fail(id: number, code: string, message: string): void {
    this.#init.send({ type: 'error', id, code, message, won_by: undefined, decision: undefined })
  }
}

type Request = Exclude<ApprovalClientBody, { type: 'open' }>

/** Serves an approval client, which receives every request and can decide and change modes and grants. */
export class ApproverSession implements DeskSession {
  readonly #deps: DeskSessionDeps
  readonly #init: { readonly name: string; readonly send: (body: ToApprovalClientBody) => void }
  #leave: (() => void) | null = null
  #unlisten: (() => void) | null = null
  #inFlight = 0
  #isOver = false

  constructor(deps: DeskSessionDeps, init: { readonly name: string; readonly send: (body: ToApprovalClientBody) => void }) {
    this.#deps = deps
    this.#init = init
  }

  take(bytes: Uint8Array): string | null {
    const body = readApprovalClientBody(bytes)
    if (typeof body === 'string') return body
    if (body.type === 'open') return 'it is open already'
    if (this.#inFlight >= MAX_APPROVAL_CLIENT_REQUESTS) return 'too many requests wait for their results'
    this.#inFlight += 1
    void this.#answer(body).finally(() => (this.#inFlight -= 1))
    return null
  }

  end(): void {
    this.#isOver = true
    this.#deps.runs.follow(this, [])
    this.#leave?.()
    this.#unlisten?.()
  }

  async #answer(body: Request): Promise<void> {
    const { id } = body
    try {
      const result = await this.#do(body)
      const fits = Buffer.byteLength(jsonText(JSON.stringify(result))) < MAX_DESK_REPLY - SEAL_BYTES
      if (fits) this.#init.send({ type: 'result', id, result: { ...result } })
      else this.#fail(id, 'resource_limit', 'the answer is too large for one line: read the file itself')
    } catch (error) {
      const data = isAppError(error) ? error.data : {}
      const textOf = (key: string): string | undefined => (typeof data[key] === 'string' ? data[key] : undefined)
      this.#fail(id, isAppError(error) ? error.code : 'internal', errorText(error), textOf('won_by'), textOf('decision'))
    }
  }

  async #do(body: Request): Promise<object> {
    const { desk, records, runs } = this.#deps
    switch (body.type) {
      case 'subscribe':
        if (!this.#isOver) this.#leave ??= desk.watch({ emit: (message) => this.#receives(message) && this.#init.send(message) })
        return desk.waiting
      case 'listen':
        // A subscribed client already receives run events.
        if (!this.#isOver)
          this.#unlisten ??= desk.listen({ emit: (message) => this.#leave === null && this.#receives(message) && this.#init.send(message) })
        return {}
      case 'follow':
        if (!this.#isOver) runs.follow(this, body.runs)
        return records.running(runs.running)
      case 'pending':
        return desk.waiting
      case 'decide': {
        const { grant_id } = await desk.decide(body, this.#init.name)
        return { question_id: body.question_id, decision: body.decision, grant_id }
      }
      case 'modes_get':
        return records.modes(body.session, body.agent)
      case 'modes_list':
        return records.allModes()
      case 'modes_set':
        await desk.modes.set(body.session, body.override, `human:${this.#init.name}`)
        return records.modes(body.session, null)
      case 'modes_save':
        await desk.modes.save(body.agent, body.row, `human:${this.#init.name}`)
        return records.modes(null, body.agent)
      case 'store':
      case 'grants':
      case 'revoke':
      case 'allowlist_add':
      case 'allowlist_remove':
      case 'history':
        return records.answer(body, `human:${this.#init.name}`)
    }
  }

  /** Output is sent only for followed runs. */
  #receives(message: WatcherMessage): boolean {
    return !isOutput(message) || this.#deps.runs.isFollowed(this, message.event)
  }

  #fail(id: number, code: string, message: string, wonBy?: string, decision?: string): void {
    this.#init.send({ type: 'error', id, code, message, won_by: wonBy, decision })
  }
}

/** Size of the line around a result. */
const SEAL_BYTES = 1_024
