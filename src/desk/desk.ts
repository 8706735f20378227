import { BoundedMap } from '../base/bounded.ts'
import type { Clock, Timer } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { judge, judgeFallback, type Judgement } from '../policy/approval/judge.ts'
import { ANSWER_FRESH_MS, signAnswer } from '../policy/approval/open-approval.ts'
import { closedProblemOf } from '../protocol/closed-fields.ts'
import { QUESTION_FIELDS } from '../protocol/desk-question.ts'
import type { PendingQuestion } from '../protocol/desk.ts'
import { FLOOD_SUMMARY_MS, MAX_FLOOD_NAME, MAX_QUESTION_JSON, MAX_SETTLED, MAX_WHY_ASKED } from '../protocol/desk-limits.ts'
import type { LifecycleEvent } from '../protocol/lifecycle.ts'
import { isShowable } from '../protocol/question-size.ts'
import type { Question, SignedAnswer } from '../protocol/question.ts'
import { storeProblem, type ApprovalStore } from './approval-store.ts'
import type { Waiting } from './desk-link.ts'
import type { DeskJournal } from './desk-journal.ts'
import { DeskModes } from './desk-modes.ts'
import {
  checkDecision,
  decidedBy,
  decisionsFor,
  denial,
  tooLong,
  unavailable,
  type Ending,
  type HumanDecision,
  type Settled,
} from './endings.ts'
import { Judging } from './judging.ts'
import { newNonce } from './seal.ts'
import { tokenBytes } from './store-shape.ts'
import { countedAs, WaitingQuestions, type WaitingQuestion } from './waiting-questions.ts'
import { Watchers, type Watcher } from './watchers.ts'

export interface DeskComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly journal: DeskJournal
  readonly store: ApprovalStore
}

export interface DeskInit {
  /** How long a human has. */
  readonly askTimeoutMs: number
}

/** A question that waits, and how its asker is told. */
interface Open {
  readonly waiting: WaitingQuestion
  readonly timer: Timer
  /** Of who asked. */
  readonly signal: AbortSignal
  readonly resolve: (ending: Ending) => void
}

/** Holds what must be asked, asks whoever watches, and answers what policy, the store and humans make of it. */
export class Desk implements Startable {
  readonly #components: DeskComponents
  readonly #init: DeskInit
  readonly #waiting: WaitingQuestions
  readonly #watchers: Watchers
  readonly #open = new Map<string, Open>()
  readonly #settled = new BoundedMap<string, Settled>({ max: MAX_SETTLED })
  readonly #judging: Judging
  readonly modes: DeskModes
  #floods: Timer | null = null
  #stopped = true

  constructor(components: DeskComponents, init: DeskInit) {
    this.#components = components
    this.#init = init
    this.#waiting = new WaitingQuestions(components)
    this.#watchers = new Watchers(components, { onNone: () => void this.#nobodyWatches() })
    this.modes = new DeskModes(components)
    this.#judging = new Judging({ ...components, modes: this.modes })
  }

  start(): void {
    this.#stopped = false
  }

  /** Whatever waits is denied. */
  async stop(): Promise<void> {
    this.#stopped = true
    const reason = 'the desk is stopping'
    const open = [...this.#open.values()].filter(({ waiting }) => waiting.decider === null)
    await Promise.all(open.map(async (one) => this.#end(one, { decision: 'deny', outcome: 'denied', by: 'desk', reason })))
    await this.#tellFloods()
  }

  /** As `DeskLink.ask`. `engine`: what it calls itself. */
  async ask(question: Question, engine: string, signal: AbortSignal, onPending: (waiting: Waiting) => void): Promise<SignedAnswer> {
    signal.throwIfAborted()
    if (this.#stopped) throw unavailable('the desk is stopping')
    const id = `q_${newNonce()}`
    const problem = closedProblemOf({ ...question }, QUESTION_FIELDS)
    if (problem !== null) throw unavailable(`the question is malformed (${problem})`)
    const bytes = Buffer.byteLength(JSON.stringify(question))
    if (bytes > MAX_QUESTION_JSON) return this.#sign(id, question, tooLong())
    const canShow = isShowable(question)
    const judged = await this.#judging.judged(question, judge)
    const mustWait = judged.kind === 'ask' && canShow && this.#watchers.any
    if (mustWait && !this.#waiting.take(id, question, bytes)) return this.#sign(id, question, this.#tooMany(question))
    try {
      await this.#write(async () => this.#components.journal.asked(id, question, engine))
      if (mustWait) return this.#sign(id, question, await this.#wait(id, question, judged, engine, signal, onPending))
    } finally {
      this.#waiting.delete(id)
    }
    if (judged.kind === 'ask' && !canShow) return this.#close(id, question, tooLong())
    const final = judged.kind === 'ask' ? await this.#judging.judged(question, judgeFallback) : judged
    return this.#close(id, question, await this.#judging.ending(question, final, judged.kind === 'ask' ? 'no_ui' : 'deny'))
  }

  /** What waits, oldest first. */
  get questions(): readonly PendingQuestion[] {
    return this.#waiting.all.map(({ decider: _decider, ...pending }) => pending)
  }

  get floods() {
    return this.#waiting.floods
  }

  /** Answers what takes the watcher out again. */
  watch(watcher: Watcher): () => void {
    return this.#watchers.add(watcher)
  }

  /** As `watch`, for one who hears of runs and cannot be asked. */
  listen(listener: Watcher): () => void {
    return this.#watchers.listen(listener)
  }

  event(event: LifecycleEvent): void {
    this.#watchers.tell({ type: 'event', event })
  }

  /**
   * The first decision counts. `by`: the window of the human. Throws `conflict`, with `won_by` and `decision`, where somebody else
   * was faster, or where it is about another permit; `not_found`; `bad_request`; `journal_unavailable`; what the store throws.
   */
  async decide(decided: HumanDecision, by: string): Promise<{ readonly grant_id: string | null }> {
    const open = this.#openFor(decided)
    const { waiting } = open
    checkDecision(waiting, decided)
    // From here on nobody else decides it, and its time does not run out.
    waiting.decider = `human:${by}`
    let grantId: string | null = null
    try {
      if (decided.decision === 'allow_always') grantId = await this.#judging.grant(waiting.question, decided, by)
    } catch (error) {
      waiting.decider = null
      this.#catchUp(open)
      throw error
    }
    const isAllowed = decided.decision !== 'deny'
    const failure = await this.#end(open, {
      decision: isAllowed ? 'allow' : 'deny',
      outcome: isAllowed ? 'allowed' : 'denied',
      by: `human:${by}`,
      reason: grantId === null ? '' : `always, ${grantId}`,
    })
    if (failure !== null) throw failure
    return { grant_id: grantId }
  }

  /** What happened while a decision was being made that came to nothing. */
  #catchUp(open: Open): void {
    if (open.signal.aborted) void this.#withdraw(open)
    else if (this.#components.clock.now() >= open.waiting.expires_at_ms) void this.#unanswered(open, 'timeout')
    else if (!this.#watchers.any) void this.#unanswered(open, 'no_ui')
  }

  #openFor({ question_id: id, permit_sha256: permit }: HumanDecision): Open {
    const open = this.#open.get(id)
    if (open === undefined) {
      const before = this.#settled.get(id)
      if (before === undefined) throw new AppError('not_found', 'no question has that id: it was withdrawn, or the desk was started again')
      throw decidedBy(before)
    }
    const { decider, question } = open.waiting
    if (decider !== null) throw decidedBy({ decision: 'being decided', by: decider })
    if (permit !== question.permit_sha256)
      throw new AppError('conflict', 'that is not what is asked now: the permit is another; look at the question again', {
        data: { decision: 'mismatch' },
      })
    return open
  }

  async #wait(
    id: string,
    asked: Question,
    { why, mayLast }: Extract<Judgement, { kind: 'ask' }>,
    engine: string,
    signal: AbortSignal,
    onPending: (waiting: Waiting) => void,
  ): Promise<Ending> {
    signal.throwIfAborted()
    if (this.#stopped) throw unavailable('the desk is stopping')
    const { clock } = this.#components
    const { askTimeoutMs } = this.#init
    const now = clock.now()
    const pending = {
      question_id: id,
      question: { ...asked, why: why.slice(0, MAX_WHY_ASKED) },
      asked_at_ms: now,
      expires_at_ms: now + askTimeoutMs,
      engine,
      decisions: decisionsFor(mayLast),
    }
    const { promise, resolve } = Promise.withResolvers<Ending>()
    const timer = clock.setTimeout(() => void this.#unanswered(open, 'timeout'), askTimeoutMs)
    const open: Open = { waiting: { ...pending, decider: null }, timer, signal, resolve }
    this.#open.set(id, open)
    this.#waiting.add(open.waiting)
    const withdraw = (): void => void this.#withdraw(open)
    signal.addEventListener('abort', withdraw, { once: true })
    this.#watchers.tell({ type: 'question', ...pending })
    onPending({ question_id: id, expires_at_ms: pending.expires_at_ms })
    // The last window may have gone while the question was written down.
    if (!this.#watchers.any) void this.#unanswered(open, 'no_ui')
    const ending = await promise
    signal.removeEventListener('abort', withdraw)
    signal.throwIfAborted()
    return ending
  }

  async #withdraw(open: Open): Promise<void> {
    if (open.waiting.decider !== null) return
    await this.#end(open, { decision: 'deny', outcome: 'withdrawn', by: open.waiting.engine, reason: 'the asker does not wait any more' })
  }

  async #nobodyWatches(): Promise<void> {
    await Promise.all([...this.#open.values()].map(async (open) => this.#unanswered(open, 'no_ui')))
  }

  async #unanswered(open: Open, why: 'no_ui' | 'timeout'): Promise<void> {
    const { waiting } = open
    if (waiting.decider !== null || !this.#open.has(waiting.question_id)) return
    // What a human decides while the store is read comes too late.
    waiting.decider = 'desk'
    const { question } = waiting
    await this.#end(open, await this.#judging.ending(question, await this.#judging.judged(question, judgeFallback), why))
  }

  /** Once for each: written down, then the asker is told, then those who watch. Answers why it could not be written; then it is denied. */
  async #end(open: Open, ending: Ending): Promise<AppError | null> {
    const { waiting, timer, resolve } = open
    const { question_id: id, question } = waiting
    if (!this.#open.delete(id)) return null
    timer.cancel()
    this.#settled.set(id, { decision: ending.outcome, by: ending.by })
    const failure = await this.#record(id, question, ending).then(
      () => null,
      (error: unknown) => unavailable(`the journal of the desk cannot be written (${errorText(error)})`, error),
    )
    const { decision, outcome, by, reason } = failure === null ? ending : denial('deny', failure.message)
    this.#waiting.delete(id)
    this.#settled.set(id, { decision: outcome, by })
    resolve({ decision, outcome, by, reason })
    this.#watchers.tell({ type: 'settled', question_id: id, decision: outcome, by })
    return failure
  }

  async #close(id: string, question: Question, ending: Ending): Promise<SignedAnswer> {
    await this.#write(async () => this.#record(id, question, ending))
    return this.#sign(id, question, ending)
  }

  async #record(id: string, { permit_sha256 }: Question, { outcome, by, reason }: Ending): Promise<void> {
    await this.#components.journal.settled({ question_id: id, permit_sha256, outcome, by, reason })
  }

  async #write(work: () => Promise<void>): Promise<void> {
    try {
      await work()
    } catch (error) {
      throw unavailable(`the journal of the desk cannot be written (${errorText(error)})`, error)
    }
  }

  async #sign(id: string, { permit_sha256 }: Question, { decision, by, reason }: Ending): Promise<SignedAnswer> {
    const { clock, store } = this.#components
    const expires_at_ms = clock.now() + ANSWER_FRESH_MS
    try {
      const key = tokenBytes(await store.read())
      return signAnswer({ question_id: id, permit_sha256, decision, by, reason, expires_at_ms, nonce: newNonce() }, key)
    } catch (error) {
      throw unavailable(storeProblem(error), error)
    }
  }

  #tooMany(question: Question): Ending {
    const asker = countedAs(question).slice(0, MAX_FLOOD_NAME)
    const flood = this.#waiting.floods.find((one) => one.asker === asker) ?? this.#waiting.floods.at(-1)
    if (flood !== undefined) this.#watchers.tell({ type: 'flood', ...flood })
    this.#floods ??= this.#components.clock.setTimeout(() => void this.#tellFloods(), FLOOD_SUMMARY_MS, { unref: true })
    return denial('deny', 'too many of its questions wait, or came at once: it is denied without being shown')
  }

  async #tellFloods(): Promise<void> {
    this.#floods?.cancel()
    this.#floods = null
    const { journal, log } = this.#components
    for (const { asker, count } of this.#waiting.takeFloods())
      await journal
        .settled({ question_id: null, permit_sha256: null, outcome: 'too_many', by: asker, reason: 'denied unseen', count })
        .catch((error: unknown) => log.warn({ asker, count, err: errorText(error) }, 'questions that were too many are not in the journal'))
  }
}
