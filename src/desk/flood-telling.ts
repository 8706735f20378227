import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { FLOOD_SUMMARY_MS, MAX_FLOOD_NAME } from '../protocol/desk-limits.ts'
import type { Question } from '../protocol/question.ts'
import type { DeskJournal } from './desk-journal.ts'
import { countedAs, type WaitingQuestions } from './waiting-questions.ts'
import type { Watchers } from './watchers.ts'

export interface FloodTellingComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly journal: Pick<DeskJournal, 'settled'>
  readonly waiting: Pick<WaitingQuestions, 'floods' | 'takeFloods'>
  readonly watchers: Pick<Watchers, 'tell'>
}

/** Tells of what was too much: humans at once, and the journal in one line for each asker. */
export class FloodTelling {
  readonly #components: FloodTellingComponents
  #timer: Timer | null = null

  constructor(components: FloodTellingComponents) {
    this.#components = components
  }

  /** This one was counted. */
  counted(question: Question): void {
    const { clock, waiting, watchers } = this.#components
    const asker = countedAs(question).slice(0, MAX_FLOOD_NAME)
    const flood = waiting.floods.find((one) => one.asker === asker) ?? waiting.floods.at(-1)
    if (flood !== undefined) watchers.tell({ type: 'flood', ...flood })
    this.#timer ??= clock.setTimeout(() => void this.write(), FLOOD_SUMMARY_MS, { unref: true })
  }

  async write(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    const { journal, log, waiting } = this.#components
    for (const { asker, count } of waiting.takeFloods())
      await journal
        .settled({ question_id: null, permit_sha256: null, outcome: 'too_many', by: asker, reason: 'denied unseen', count })
        .catch((error: unknown) => log.warn({ asker, count, err: errorText(error) }, 'questions that were too many are not in the journal'))
  }
}
