import { homedir } from 'node:os'

import type { ApprovalOutcome } from '../audit/events.ts'
import { BoundedMap } from '../base/bounded.ts'
import type { Clock, Timer } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { Startable } from '../base/startable.ts'
import { judge, judgeFallback, type Judgement } from '../policy/approval/judge.ts'
import { ANSWER_FRESH_MS, signAnswer } from '../policy/approval/open-approval.ts'
import type { PendingQuestion } from '../protocol/desk.ts'
import { FLOOD_SUMMARY_MS, GRANT_MS, MAX_QUESTION_JSON, MAX_SETTLED, MAX_SHOWN_JSON } from '../protocol/desk-limits.ts'
import type { LifecycleEvent } from '../protocol/lifecycle.ts'
import type { Answer, Decision, Question, SignedAnswer } from '../protocol/question.ts'
import type { ApprovalStore } from './approval-store.ts'
import { storeProblem } from './approval-store.ts'
import type { Waiting } from './desk-link.ts'
import type { DeskJournal } from './desk-journal.ts'
import { DeskModes } from './desk-modes.ts'
import { newNonce } from './seal.ts'
import { rowName, snapshotOf } from './snapshot.ts'
import { withGrant, withUse } from './store-changes.ts'
import { tokenBytes } from './store-shape.ts'
import { askerName, WaitingQuestions, type WaitingQuestion } from './waiting-questions.ts'
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

/** What a human decides about exactly the permit that was shown. */
export interface HumanDecision {
  readonly question_id: string
  readonly permit_sha256: string
  readonly decision: Decision
  readonly expires_in_ms?: number | undefined
  readonly uses?: number | undefined
}

/** Who decided a question, and what. */
interface Settled {
  readonly decision: string
  readonly by: string
}

interface Ending {
  readonly decision: Answer
  readonly outcome: ApprovalOutcome
  readonly by: string
  readonly reason: string
}

/** A question that waits, and how its asker is told. */
interface Open {
  readonly waiting: WaitingQuestion
  readonly timer: Timer
  readonly resolve: (ending: Ending) => void
}

const unavailable = (why: string, cause?: unknown): AppError =>
  new AppError('approval_unavailable', `${why}; nothing was allowed`, { cause })

/** Holds what must be asked, asks whoever watches, and answers what policy, the store and humans make of it. */
export class Desk implements Startable {
  readonly #components: DeskComponents
  readonly #init: DeskInit
  readonly #waiting: WaitingQuestions
  readonly #watchers: Watchers
  readonly #open = new Map<string, Open>()
  readonly #settled = new BoundedMap<string, Settled>({ max: MAX_SETTLED })
  readonly modes: DeskModes
  #floods: Timer | null = null
  #stopped = true

  constructor(components: DeskComponents, init: DeskInit) {
    this.#components = components
    this.#init = init
    this.#waiting = new WaitingQuestions(components)
    this.#watchers = new Watchers(components, { onNone: () => void this.#nobodyWatches() })
    this.modes = new DeskModes(components)
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
    const bytes = Buffer.byteLength(JSON.stringify(question))
    if (bytes > MAX_QUESTION_JSON) return this.#sign(id, question, tooLong(bytes))
    const judged = await this.#judged(question, judge)
    const mustWait = judged.kind === 'ask' && bytes <= MAX_SHOWN_JSON && this.#watchers.any
    if (mustWait && !this.#waiting.hasRoom(question, bytes)) return this.#sign(id, question, this.#tooMany(question))
    await this.#write(async () => this.#components.journal.asked(id, question, engine))
    if (judged.kind === 'ask' && bytes > MAX_SHOWN_JSON) return this.#close(id, question, tooLong(bytes))
    if (!mustWait) {
      const final = judged.kind === 'ask' ? await this.#judged(question, judgeFallback) : judged
      return this.#close(id, question, await this.#ending(question, final, judged.kind === 'ask' ? 'no_ui' : 'deny'))
    }
    signal.throwIfAborted()
    return this.#sign(id, question, await this.#wait(id, { ...question, why: judged.why }, bytes, engine, signal, onPending))
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
    checkDecision(waiting.question, decided)
    // From here on nobody else decides it, and its time does not run out.
    waiting.decider = by
    let grantId: string | null = null
    try {
      if (decided.decision === 'allow_always') grantId = await this.#grant(waiting.question, decided, by)
    } catch (error) {
      waiting.decider = null
      if (this.#components.clock.now() >= waiting.expires_at_ms) void this.#unanswered(open, 'timeout')
      throw error
    }
    const isAllowed = decided.decision !== 'deny'
    const reason = grantId === null ? '' : `always, ${grantId}`
    await this.#end(open, {
      decision: isAllowed ? 'allow' : 'deny',
      outcome: isAllowed ? 'allowed' : 'denied',
      by: `human:${by}`,
      reason,
    })
    return { grant_id: grantId }
  }

  #openFor({ question_id: id, permit_sha256: permit }: HumanDecision): Open {
    const open = this.#open.get(id)
    if (open === undefined) {
      const before = this.#settled.get(id)
      if (before === undefined) throw new AppError('not_found', 'no question has that id: it was withdrawn, or the desk was started again')
      throw decidedBy(before)
    }
    const { decider, question } = open.waiting
    if (decider !== null) throw decidedBy({ decision: 'being decided', by: `human:${decider}` })
    if (permit !== question.permit_sha256)
      throw new AppError('conflict', 'that is not what is asked now: the permit is another; look at the question again', {
        data: { decision: 'mismatch' },
      })
    return open
  }

  async #grant(question: Question, { expires_in_ms: lasts = GRANT_MS, uses }: HumanDecision, by: string): Promise<string> {
    const { clock, store } = this.#components
    const [id, now] = [`g_${newNonce()}`, clock.now()]
    const { permit_sha256, grant_sha256, argv, executable, cwd } = question
    const agent = rowName(question)
    const grant = {
      id,
      permit_sha256,
      grant_sha256: grant_sha256 ?? '',
      agent,
      argv,
      executable,
      cwd,
      created_at_ms: now,
      expires_at_ms: now + lasts,
      // This very run is the first of them.
      uses_left: uses === undefined ? null : uses - 1,
      by: `human:${by}`,
      last_used_at_ms: now,
    }
    await store.change({ change: 'grant', by: `human:${by}`, agent, detail: id }, (before) => withGrant(before, grant, now))
    return id
  }

  async #judged(question: Question, by: typeof judge): Promise<Judgement> {
    try {
      const store = await this.#components.store.read()
      const override = await this.modes.of(question.session_id, rowName(question))
      return by(question, snapshotOf(store, question, override, homedir()), this.#components.clock.now())
    } catch (error) {
      return { kind: 'deny', reason: storeProblem(error) }
    }
  }

  /** What a judgement comes to. A use of a grant is written before anybody is told of it. `otherwise`: what a denial is called. */
  async #ending(question: Question, judged: Judgement, otherwise: 'deny' | 'no_ui' | 'timeout'): Promise<Ending> {
    if (judged.kind !== 'allow') return denial(otherwise, judged.kind === 'ask' ? judged.why : judged.reason)
    const { by, pattern, grant_id } = judged
    const { clock, store } = this.#components
    const agent = rowName(question)
    try {
      if (grant_id !== null && !(await this.#use(agent, grant_id))) return denial(otherwise, `${by} was used up or revoked a moment ago`)
    } catch (error) {
      return denial(otherwise, `the use of ${by} could not be written: ${errorText(error)}`)
    }
    if (pattern !== null) {
      const [at_ms, command] = [clock.now(), question.argv.join(' ')]
      store.lastUsed({ agent, pattern, grant_id, at_ms, command, path: question.executable })
    }
    return { decision: 'allow', outcome: 'allowed', by, reason: '' }
  }

  async #use(agent: string, grantId: string): Promise<boolean> {
    const { clock, store } = this.#components
    return store.change({ change: 'grant_use', by: 'desk', agent, detail: grantId }, (before) => withUse(before, grantId, clock.now()))
  }

  async #wait(
    id: string,
    question: Question,
    bytes: number,
    engine: string,
    signal: AbortSignal,
    onPending: (waiting: Waiting) => void,
  ): Promise<Ending> {
    const { clock } = this.#components
    const { askTimeoutMs } = this.#init
    const asked = clock.now()
    const waiting = { question_id: id, question, asked_at_ms: asked, expires_at_ms: asked + askTimeoutMs, engine, decider: null }
    const { promise, resolve } = Promise.withResolvers<Ending>()
    const open: Open = { waiting, timer: clock.setTimeout(() => void this.#unanswered(open, 'timeout'), askTimeoutMs), resolve }
    this.#open.set(id, open)
    this.#waiting.add(waiting, bytes)
    const withdraw = (): void => void this.#withdraw(open)
    signal.addEventListener('abort', withdraw, { once: true })
    const { decider: _decider, ...pending } = waiting
    this.#watchers.tell({ type: 'question', ...pending })
    onPending({ question_id: id, expires_at_ms: waiting.expires_at_ms })
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
    await this.#end(open, await this.#ending(question, await this.#judged(question, judgeFallback), why))
  }

  /** Once for each: written down, then the asker is told, then those who watch. */
  async #end(open: Open, ending: Ending): Promise<void> {
    const { waiting, timer, resolve } = open
    const { question_id: id, question } = waiting
    if (!this.#open.delete(id)) return
    timer.cancel()
    let final = ending
    try {
      await this.#record(id, question, ending)
    } catch (error) {
      final = { ...denial('deny', `the journal of the desk cannot be written: ${errorText(error)}`) }
      throw error
    } finally {
      this.#waiting.delete(id)
      this.#settled.set(id, { decision: final.outcome, by: final.by })
      resolve(final)
      this.#watchers.tell({ type: 'settled', question_id: id, decision: final.outcome, by: final.by })
    }
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
    const asker = askerName(question)
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

const denial = (decision: 'deny' | 'no_ui' | 'timeout', reason: string): Ending => ({
  decision,
  outcome: decision === 'deny' ? 'denied' : decision === 'timeout' ? 'timed_out' : 'no_ui',
  by: 'desk',
  reason,
})

const tooLong = (bytes: number): Ending => ({
  ...denial('deny', `with ${bytes} bytes it is too long for a human to be shown whole; put what is long into a file or stdin`),
  outcome: 'too_long',
})

const decidedBy = ({ decision, by }: Settled): AppError =>
  new AppError('conflict', `it is ${decision} already, by ${by}`, { data: { won_by: by, decision } })

/** Throws `bad_request` for what cannot be decided like that. */
const checkDecision = (question: Question, { decision, expires_in_ms: lasts, uses }: HumanDecision): void => {
  if (decision !== 'allow_always') {
    if (lasts !== undefined || uses !== undefined)
      throw new AppError('bad_request', `an expiry and uses are of allow_always, and this is ${decision}`)
    return
  }
  if (question.always_ask !== null) throw new AppError('bad_request', `it needs a human each time (${question.always_ask}): allow it once`)
  if (question.grant_sha256 === null)
    throw new AppError('bad_request', 'this may be allowed once only: what it would run again is not known')
}
