import { errorText, isAppError } from '../base/errors.ts'
import { MAX_DESK_REPLY, MAX_HUMAN_REQUESTS } from '../protocol/desk-limits.ts'
import { type HumanBody, type ToHumanBody, readHumanBody } from '../protocol/desk.ts'
import { jsonText } from '../protocol/lines.ts'
import type { DeskRecords } from './desk-records.ts'
import type { Desk } from './desk.ts'
import type { DeskSession } from './engine-session.ts'
import type { FollowedRuns } from './followed-runs.ts'
import { type News, isOutput } from './watchers.ts'

type Request = Exclude<HumanBody, { type: 'open' }>

export interface HumanSessionComponents {
  readonly desk: Desk
  readonly records: DeskRecords
  readonly runs: FollowedRuns
}

/** Serves a window of a human, who is told of every question and may decide and change. */
export class HumanSession implements DeskSession {
  readonly #components: HumanSessionComponents
  readonly #name: string
  readonly #send: (body: ToHumanBody) => void
  #leave: (() => void) | null = null
  #unlisten: (() => void) | null = null
  #going = 0
  #isOver = false

  constructor(components: HumanSessionComponents, init: { readonly name: string; readonly send: (body: ToHumanBody) => void }) {
    this.#components = components
    this.#name = init.name
    this.#send = init.send
  }

  take(bytes: Uint8Array): string | null {
    const body = readHumanBody(bytes)
    if (typeof body === 'string') return body
    if (body.type === 'open') return 'it is open already'
    if (this.#going >= MAX_HUMAN_REQUESTS) return 'too many requests wait for their results'
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
        if (!this.#isOver) this.#leave ??= desk.watch({ tell: (news) => this.#hears(news) && this.#send(news) })
        return desk.waiting
      case 'listen':
        // Whoever watches hears it already.
        if (!this.#isOver) this.#unlisten ??= desk.listen({ tell: (news) => this.#leave === null && !isOutput(news) && this.#send(news) })
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
  #hears(news: News): boolean {
    return !isOutput(news) || this.#components.runs.isFollowed(this, news.event)
  }

  #fail(id: number, code: string, message: string, wonBy?: string, decision?: string): void {
    this.#send({ type: 'error', id, code, message, won_by: wonBy, decision })
  }
}

/** What stands around a result in its line. */
const SEAL_BYTES = 1_024
