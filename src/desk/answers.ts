import type { Clock } from '../base/clock.ts'
import { type AppError, errorText } from '../base/errors.ts'
import { ANSWER_FRESH_MS, sealAnswer } from '../policy/approval/open-approval.ts'
import type { Question, SealedAnswer } from '../protocol/question.ts'
import { type ApprovalStore, storeProblem } from './approval-store.ts'
import type { DeskJournal } from './desk-journal.ts'
import { type Ending, unavailable } from './endings.ts'
import { newNonce } from './seal.ts'
import { tokenBytes } from './store-shape.ts'

export interface AnswersComponents {
  readonly clock: Clock
  readonly journal: DeskJournal
  readonly store: ApprovalStore
}

const unwritten = (error: unknown): AppError => unavailable(`the journal of the desk cannot be written (${errorText(error)})`, error)

/** What was asked and what becomes of it: on the disk first, then in an answer with a MAC for the engine. */
export class Answers {
  readonly #components: AnswersComponents

  constructor(components: AnswersComponents) {
    this.#components = components
  }

  /** Throws `approval_unavailable` where it cannot be written, as `ended` does. */
  async asked(id: string, question: Question, engine: string): Promise<void> {
    await this.#components.journal.asked(id, question, engine).catch((error: unknown) => {
      throw unwritten(error)
    })
  }

  async ended(id: string, { permit_sha256 }: Question, { outcome, by, reason }: Ending): Promise<void> {
    await this.#components.journal.settled({ question_id: id, permit_sha256, outcome, by, reason }).catch((error: unknown) => {
      throw unwritten(error)
    })
  }

  async close(id: string, question: Question, ending: Ending): Promise<SealedAnswer> {
    await this.ended(id, question, ending)
    return this.seal(id, question, ending)
  }

  /** Throws `approval_unavailable` while the store has no key. */
  async seal(id: string, { permit_sha256 }: Question, { decision, by, reason }: Ending): Promise<SealedAnswer> {
    const { clock, store } = this.#components
    const expires_at_ms = clock.now() + ANSWER_FRESH_MS
    try {
      const key = tokenBytes(await store.read())
      return sealAnswer({ question_id: id, permit_sha256, decision, by, reason, expires_at_ms, nonce: newNonce() }, key)
    } catch (error) {
      throw unavailable(storeProblem(error), error)
    }
  }
}
