import { errorText, isAppError } from '../base/errors.ts'
import { hasShare } from '../base/share.ts'
import { MAX_QUESTIONS_OF_ENGINE } from '../protocol/desk-limits.ts'
import { type EngineBody, type ToEngineBody, readEngineBody } from '../protocol/desk.ts'
import type { Desk } from './desk.ts'
import type { EngineRuns, FollowedRuns } from './followed-runs.ts'
import { callerOf } from './waiting-questions.ts'

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
  readonly #desk: Desk
  readonly #engine: string
  readonly #send: (body: ToEngineBody) => void
  readonly #asked = new Map<number, Asked>()
  readonly #followed: FollowedRuns
  readonly #runs: EngineRuns

  constructor(
    components: { readonly desk: Desk; readonly runs: FollowedRuns },
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
