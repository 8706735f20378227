import { BoundedMap } from '../base/bounded-collections.ts'
import type { Timer } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
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
  byApprover,
  stopping,
  tooMany,
  unanswered,
  unavailable,
  withdrawn,
} from './decisions.ts'
import type { WaitNotice } from './desk-link.ts'
import { FloodNotifier } from './flood-summary.ts'
import { Judging } from './judging.ts'
import { DeskModes } from './modes.ts'
import { type QueuedApprovalRequest, ApprovalRequestQueue } from './approval-request-queue.ts'
import { newNonce } from './seal.ts'
import { type Watcher, Watchers } from './watchers.ts'
import type { DeskServices } from './services.ts'

export interface DeskInit {
  /** How long an approver may take. */
  readonly askTimeoutMs: number
}

/** A pending request and the way to answer its requester. */
interface Open {
  readonly waiting: QueuedApprovalRequest
  readonly timer: Timer
  /** Aborts when the requester no longer waits. */
  readonly signal: AbortSignal
  readonly resolve: (ending: Ending) => void
}

/** Queues approval requests, shows them to approvers, and answers them by policy, store and decisions. */
export class ApprovalService implements Startable {
  readonly #deps: Pick<DeskServices, 'clock' | 'log' | 'journal' | 'store'>
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

  constructor(deps: Pick<DeskServices, 'clock' | 'log' | 'journal' | 'store'>, init: DeskInit) {
    this.#deps = deps
    this.#init = init
    this.#waiting = new ApprovalRequestQueue(deps)
    this.#watchers = new Watchers(deps, { onNone: () => void this.#onNoApprover() })
    this.#floods = new FloodNotifier({ ...deps, watchers: this.#watchers })
    this.#answers = new DecisionSigner(deps)
    this.modes = new DeskModes(deps)
    this.#judging = new Judging({ ...deps, modes: this.modes })
  }

  /** Closes the requests of an earlier process in the approval log. */
  async start(): Promise<void> {
    const { journal, log } = this.#deps
    await journal
      .closeOpen({ ...denial('deny', 'the approval service stopped before a decision; nothing was allowed'), outcome: 'desk_gone' })
      .catch((error: unknown) =>
        log.warn({ err: errorText(error) }, 'approval requests of an earlier approval service could not be closed in the log'),
      )
    this.#stopped = false
  }

  /** Denies all pending requests. */
  async stop(): Promise<void> {
    this.#stopped = true
    const open = [...this.#open.values()].filter(({ waiting }) => waiting.decider === null)
    await Promise.all(open.map(async (one) => this.#end(one, stopping())))
    await this.#floods.write()
  }

  /** As `DeskLink.ask`. `engine`: name of the asking engine. */
  async ask(
    question: ApprovalRequest,
    engine: string,
    signal: AbortSignal,
    onPending: (waiting: WaitNotice) => void,
  ): Promise<SealedAnswer> {
    signal.throwIfAborted()
    if (this.#stopped) throw unavailable('the approval service is stopping')
    const id = `q_${newNonce()}`
    const malformed = closedProblemOf({ ...question }, QUESTION_FIELDS)
    if (malformed !== null) throw unavailable(`the approval request is malformed (${malformed})`)
    const bytes = Buffer.byteLength(JSON.stringify(question))
    if (bytes > MAX_QUESTION_JSON)
      return this.#answers.seal(id, question, truncatedRest(`the approval request has more than ${MAX_QUESTION_JSON} bytes`))
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

  /** Pending requests (oldest first), counts of requests that were denied without being shown, and the number of approval clients. */
  get waiting() {
    const questions: readonly PendingApprovalRequest[] = this.#waiting.all.map(({ decider: _decider, ...pending }) => pending)
    return { questions, floods: this.#floods.all, windows: this.#watchers.count }
  }

  /** Returns a function that removes the watcher. */
  watch(watcher: Watcher): () => void {
    return this.#watchers.add(watcher)
  }

  /** As `watch`, for a listener that receives run events and is not an approver. */
  listen(listener: Watcher): () => void {
    return this.#watchers.listen(listener)
  }

  event(event: LifecycleEvent): void {
    this.#watchers.emit({ type: 'event', event })
  }

  /**
   * The first decision counts. `by`: name of the approval client. Throws `conflict`, with `won_by` and `decision`, if another client was
   * faster or the permit differs; `not_found`; `bad_request`; `journal_unavailable`; and the errors of the store.
   */
  async decide(decided: HumanDecision, by: string): Promise<{ readonly grant_id: string | null }> {
    const open = this.#openFor(decided)
    const { waiting } = open
    checkDecision(waiting, decided)
    // From here on, no other client can decide it and it cannot time out.
    waiting.decider = `human:${by}`
    if (decided.decision === 'allow_always') return this.#decideAlways(open, decided, by)
    const failure = await this.#end(open, byApprover(by, decided.decision !== 'deny'))
    if (failure !== null) throw failure
    return { grant_id: null }
  }

  /** Logs the decision before the grant is stored, so that every stored grant has a log line. */
  async #decideAlways(open: Open, decided: HumanDecision, by: string): Promise<{ readonly grant_id: string }> {
    const { waiting } = open
    const { question_id: id, question } = waiting
    let isWritten = false
    const always = (grantId: string): Ending => byApprover(by, true, `always, ${grantId}`)
    try {
      const grantId = await this.#judging.grant(question, decided, by, async (one) => {
        await this.#answers.ended(id, question, always(one))
        isWritten = true
      })
      this.#settle(open, always(grantId))
      return { grant_id: grantId }
    } catch (error) {
      waiting.decider = null
      // A second log line corrects the first.
      if (isWritten) await this.#end(open, denial('deny', `cannot write the grant: ${errorText(error)}`))
      else this.#catchUp(open)
      throw error
    }
  }

  /** Handles what happened while a decision was being made and failed. */
  #catchUp(open: Open): void {
    if (open.signal.aborted) void this.#withdraw(open)
    else if (this.#deps.clock.now() >= open.waiting.expires_at_ms) void this.#unanswered(open, 'timeout')
    else if (!this.#watchers.any) void this.#unanswered(open, 'no_ui')
  }

  #openFor({ question_id: id, permit_sha256: permit }: HumanDecision): Open {
    const open = this.#open.get(id)
    if (open === undefined) {
      const before = this.#settled.get(id)
      if (before === undefined)
        throw new AppError('not_found', 'no approval request has that ID: it was withdrawn, or the approval service has restarted')
      throw decidedBy(before)
    }
    const { decider, question } = open.waiting
    if (decider !== null) throw decidedBy({ decision: 'being decided', by: decider })
    if (permit !== question.permit_sha256)
      throw new AppError('conflict', 'the approval request has another permit: read it again', {
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
    const { clock } = this.#deps
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
    // The last approval client may have disconnected while the request was being logged.
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

  /** While the request was being logged, its requester disconnected or the service began to stop. */
  async #notAsked(id: string, question: ApprovalRequest, engine: string, signal: AbortSignal): Promise<SealedAnswer> {
    const answer = await this.#answers.close(id, question, signal.aborted ? withdrawn(engine) : stopping())
    signal.throwIfAborted()
    return answer
  }

  async #onNoApprover(): Promise<void> {
    await Promise.all([...this.#open.values()].map(async (open) => this.#unanswered(open, 'no_ui')))
  }

  /** The fallback applies only to requests that no approver could see. A request that was shown and not answered is denied. */
  async #unanswered(open: Open, why: 'no_ui' | 'timeout'): Promise<void> {
    const { waiting } = open
    if (waiting.decider !== null || !this.#open.has(waiting.question_id)) return
    await this.#end(open, unanswered(why))
  }

  /**
   * Ends a request once: logs it, then answers the requester, then notifies the watchers. If the log cannot be written, returns the error
   * and denies the request.
   */
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

  /** Answers the requester and notifies the watchers, after the decision was logged. */
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
