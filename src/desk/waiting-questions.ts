import type { Clock } from '../base/clock.ts'
import { RateLimit } from '../base/rate-limit.ts'
import type { Flood, PendingQuestion } from '../protocol/desk.ts'
import {
  MAX_ASKERS,
  MAX_QUESTIONS,
  MAX_QUESTIONS_OF_ASKER,
  MAX_WAITING_JSON,
  MAX_WAITING_JSON_OF_ASKER,
  QUESTION_RATE,
} from '../protocol/desk-limits.ts'
import type { Question } from '../protocol/question.ts'

/** One text for each asker whose questions are counted together: an agent of the mesh, or what a local one calls itself. */
export const askerName = ({ asker }: Pick<Question, 'asker'>): string => (asker.kind === 'mesh' ? asker.agent_id : asker.label)

interface Counted {
  readonly asker: string
  readonly bytes: number
}

/** A question that waits for a human. */
export interface WaitingQuestion extends PendingQuestion {
  /** Who decides it at this moment; null: nobody yet. */
  decider: string | null
}

/** What waits, oldest first, bounded for each asker and in all: what is too much is counted, and takes nothing from what is there. */
export class WaitingQuestions {
  readonly #clock: Clock
  readonly #rate: RateLimit
  readonly #waiting = new Map<string, WaitingQuestion>()
  readonly #counted = new Map<string, Counted>()
  readonly #floods = new Map<string, { count: number; last: number }>()
  #bytes = 0

  constructor(components: { clock: Clock }) {
    this.#clock = components.clock
    this.#rate = new RateLimit(components, { ...QUESTION_RATE, sources: MAX_ASKERS })
  }

  get all(): readonly WaitingQuestion[] {
    return [...this.#waiting.values()]
  }

  get floods(): readonly Flood[] {
    return [...this.#floods].map(([asker, { count, last }]) => ({ asker, count, last_at_ms: last }))
  }

  /** Keeps a place for it. `bytes`: of the question as JSON. False: there is none; it is counted. */
  take(id: string, question: Question, bytes: number): boolean {
    const asker = askerName(question)
    const own = [...this.#counted.values()].filter((one) => one.asker === asker)
    const ownBytes = own.reduce((sum, one) => sum + one.bytes, 0)
    const fits =
      this.#counted.size < MAX_QUESTIONS &&
      own.length < MAX_QUESTIONS_OF_ASKER &&
      this.#bytes + bytes <= MAX_WAITING_JSON &&
      ownBytes + bytes <= MAX_WAITING_JSON_OF_ASKER &&
      this.#rate.allows(asker)
    if (!fits) this.#count(asker)
    if (!fits) return false
    this.#counted.set(id, { asker, bytes })
    this.#bytes += bytes
    return true
  }

  /** Where a place was taken for it. */
  add(waiting: WaitingQuestion): void {
    this.#waiting.set(waiting.question_id, waiting)
  }

  /** It, and its place. */
  delete(id: string): void {
    this.#waiting.delete(id)
    this.#bytes -= this.#counted.get(id)?.bytes ?? 0
    this.#counted.delete(id)
  }

  /** What was counted since the last call; it is shown no more. */
  takeFloods(): readonly Flood[] {
    const floods = this.floods
    this.#floods.clear()
    return floods
  }

  #count(asker: string): void {
    const before = this.#floods.get(asker)
    // Whoever calls himself by ever new names takes no memory either.
    const name = before === undefined && this.#floods.size >= MAX_ASKERS ? 'others' : asker
    this.#floods.set(name, { count: (this.#floods.get(name)?.count ?? 0) + 1, last: this.#clock.now() })
  }
}
