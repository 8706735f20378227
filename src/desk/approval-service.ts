import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock, Timer } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { type Judgement, judge, judgeFallback } from '../policy/approval/judge.ts'
import type { HumanDecision, PendingApprovalRequest } from '../protocol/desk/messages.ts'
import { unallowable } from '../protocol/desk/approval-request-size.ts'
import { QUESTION_FIELDS, type ApprovalRequest, type SealedAnswer } from '../protocol/desk/approval-request.ts'
import type { LifecycleEvent } from '../protocol/events/lifecycle.ts'
import { closedProblemOf } from '../protocol/json-table.ts'
import { MAX_QUESTION_JSON, MAX_SETTLED, MAX_WHY_ASKED } from '../protocol/limits/approvals.ts'
import {
  DecisionSigner,
  type Ending,
  type Settled,
  checkDecision,
  decidedBy,
  decisionsFor,
  denial,
  truncatedRest,
  ofHuman,
  stopping,
  tooMany,
  unanswered,
  unavailable,
  withdrawn,
} from './decisions.ts'
import type { ApprovalStore } from './approval-store.ts'
import type { WaitNotice } from './desk-link.ts'
import { FloodNotifier } from './flood-summary.ts'
import type { DeskJournal } from './journal.ts'
import { Judging } from './judging.ts'
import { DeskModes } from './modes.ts'
import { type QueuedApprovalRequest, ApprovalRequestQueue } from './approval-request-queue.ts'
import { newNonce } from './seal.ts'
import { type Watcher, Watchers } from './watchers.ts'

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
  readonly waiting: QueuedApprovalRequest
  readonly timer: Timer
  /** Of who asked. */
  readonly signal: AbortSignal
  readonly resolve: (ending: Ending) => void
}

/** Holds what must be asked, asks whoever watches, and answers what policy, the store and humans make of it. */
export class ApprovalService implements Startable {
  readonly #components: DeskComponents
  readonly #init: DeskInit
  readonly #waiting: ApprovalRequestQueue
  readonly #watchers: Watchers
  readonly #open = new Map<string, Open>()
  readonly #settled = new BoundedMap<string, Settled>({ max: MAX_SETTLED })
  readonly #judging: Judging
  readonly #answers: DecisionSigner
  readonly #floods: FloodNotifier
  readonly modes: DeskModes
  #stopped = true

  constructor(components: DeskComponents, init: DeskInit) {
    this.#components = components
    this.#init = init
    this.#waiting = new ApprovalRequestQueue(components)
    this.#watchers = new Watchers(components, { onNone: () => void this.#nobodyWatches() })
    this.#floods = new FloodNotifier({ ...components, watchers: this.#watchers })
    this.#answers = new DecisionSigner(components)
    this.modes = new DeskModes(components)
    this.#judging = new Judging({ ...components, modes: this.modes })
  }

  /** What an earlier desk was asked and could not answer any more is closed in the journal. */
  async start(): Promise<void> {
    const { journal, log } = this.#components
    await journal
      .closeOpen({ ...denial('deny', 'the desk ended before it was decided; nothing was allowed'), outcome: 'desk_gone' })
      .catch((error: unknown) => log.warn({ err: errorText(error) }, 'questions of an earlier desk could not be closed in the journal'))
    this.#stopped = false
  }

  /** Whatever waits is denied. */
  async stop(): Promise<void> {
    this.#stopped = true
    const open = [...this.#open.values()].filter(({ waiting }) => waiting.decider === null)
    await Promise.all(open.map(async (one) => this.#end(one, stopping())))
    await this.#floods.write()
  }

  /** As `DeskLink.ask`. `engine`: what it calls itself. */
  async ask(
    question: ApprovalRequest,
    engine: string,
    signal: AbortSignal,
    onPending: (waiting: WaitNotice) => void,
  ): Promise<SealedAnswer> {
    signal.throwIfAborted()
    if (this.#stopped) throw unavailable('the desk is stopping')
    const id = `q_${newNonce()}`
    const malformed = closedProblemOf({ ...question }, QUESTION_FIELDS)
    if (malformed !== null) throw unavailable(`the question is malformed (${malformed})`)
    const bytes = Buffer.byteLength(JSON.stringify(question))
    if (bytes > MAX_QUESTION_JSON)
      return this.#answers.seal(id, question, truncatedRest(`it is longer than the ${MAX_QUESTION_JSON} bytes of a question`))
    const problem = unallowable(question)
    const canAsk = problem === null
    const judged = await this.#judging.judged(question, judge)
    const mustWait = judged.kind === 'ask' && canAsk && this.#watchers.any
    if (mustWait && !this.#waiting.take(id, question, bytes)) {
      this.#floods.count(question)
      return this.#answers.seal(id, question, tooMany())
    }
    try {
      await this.#answers.asked(id, question, engine)
      if (mustWait && (signal.aborted || this.#stopped)) return await this.#notAsked(id, question, engine, signal)
      if (mustWait) return this.#answers.seal(id, question, await this.#wait(id, question, judged, engine, signal, onPending))
    } finally {
      this.#waiting.delete(id)
    }
    if (judged.kind === 'ask' && problem !== null) return this.#answers.close(id, question, truncatedRest(problem))
    const final = judged.kind === 'ask' ? await this.#judging.judged(question, judgeFallback) : judged
    return this.#answers.close(id, question, this.#judging.ending(question, final, judged.kind === 'ask' ? 'no_ui' : 'deny'))
  }

  /** What waits, oldest first, what was denied unseen, and how many windows of humans watch. */
  get waiting() {
    const questions: readonly PendingApprovalRequest[] = this.#waiting.all.map(({ decider: _decider, ...pending }) => pending)
    return { questions, floods: this.#floods.all, windows: this.#watchers.count }
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
    this.#watchers.emit({ type: 'event', event })
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
    if (decided.decision === 'allow_always') return this.#decideAlways(open, decided, by)
    const failure = await this.#end(open, ofHuman(by, decided.decision !== 'deny'))
    if (failure !== null) throw failure
    return { grant_id: null }
  }

  /** The decision is written down before the grant is there: no grant is left of what could not be written. */
  async #decideAlways(open: Open, decided: HumanDecision, by: string): Promise<{ readonly grant_id: string }> {
    const { waiting } = open
    const { question_id: id, question } = waiting
    let isWritten = false
    const always = (grantId: string): Ending => ofHuman(by, true, `always, ${grantId}`)
    try {
      const grantId = await this.#judging.grant(question, decided, by, async (one) => {
        await this.#answers.ended(id, question, always(one))
        isWritten = true
      })
      this.#settle(open, always(grantId))
      return { grant_id: grantId }
    } catch (error) {
      waiting.decider = null
      // What is written of it is not so: another line says what became of it.
      if (isWritten) await this.#end(open, denial('deny', `the grant could not be written: ${errorText(error)}`))
      else this.#catchUp(open)
      throw error
    }
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
    asked: ApprovalRequest,
    { why, mayLast }: Extract<Judgement, { kind: 'ask' }>,
    engine: string,
    signal: AbortSignal,
    onPending: (waiting: WaitNotice) => void,
  ): Promise<Ending> {
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
    this.#watchers.emit({ type: 'question', ...pending })
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
    await this.#end(open, withdrawn(open.waiting.engine))
  }

  /** While it was written down its asker went away, or this desk began to stop. */
  async #notAsked(id: string, question: ApprovalRequest, engine: string, signal: AbortSignal): Promise<SealedAnswer> {
    const answer = await this.#answers.close(id, question, signal.aborted ? withdrawn(engine) : stopping())
    signal.throwIfAborted()
    return answer
  }

  async #nobodyWatches(): Promise<void> {
    await Promise.all([...this.#open.values()].map(async (open) => this.#unanswered(open, 'no_ui')))
  }

  /** The fallback is for requests that no approver could be shown; one that was shown and not answered is denied. */
  async #unanswered(open: Open, why: 'no_ui' | 'timeout'): Promise<void> {
    const { waiting } = open
    if (waiting.decider !== null || !this.#open.has(waiting.question_id)) return
    await this.#end(open, unanswered(why))
  }

  /** Once for each: written down, then the asker is told, then those who watch. Answers why it could not be written; then it is denied. */
  async #end(open: Open, ending: Ending): Promise<AppError | null> {
    const { question_id: id, question } = open.waiting
    if (!this.#open.delete(id)) return null
    open.timer.cancel()
    this.#settled.set(id, { decision: ending.outcome, by: ending.by })
    const failure = await this.#answers.ended(id, question, ending).then(
      () => null,
      (error: AppError) => error,
    )
    this.#settle(open, failure === null ? ending : denial('deny', failure.message))
    return failure
  }

  /** It is written down: its asker is told, and who watches. */
  #settle({ waiting: { question_id: id }, timer, resolve }: Open, ending: Ending): void {
    const { outcome, by } = ending
    timer.cancel()
    this.#open.delete(id)
    this.#waiting.delete(id)
    this.#settled.set(id, { decision: outcome, by })
    resolve(ending)
    this.#watchers.emit({ type: 'settled', question_id: id, decision: outcome, by })
  }
}
