import { homedir } from 'node:os'

import type { Clock } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { judge, Judgement } from '../policy/approval/judge.ts'
import type { Grant } from '../protocol/desk.ts'
import { GRANT_MS } from '../protocol/desk-limits.ts'
import type { Question } from '../protocol/question.ts'
import { storeProblem, type ApprovalStore } from './approval-store.ts'
import type { DeskModes } from './desk-modes.ts'
import { denial, type Ending, type HumanDecision } from './endings.ts'
import { newNonce } from './seal.ts'
import { rowName } from '../policy/approval/judge.ts'
import { snapshotOf } from './snapshot.ts'
import { withGrant, withUse } from './store-changes.ts'

export interface JudgingComponents {
  readonly clock: Clock
  readonly store: ApprovalStore
  readonly modes: DeskModes
}

/** What the store makes of questions. Policy judges; here it is told what the store has, and what it allows is written down as used. */
export class Judging {
  readonly #components: JudgingComponents

  constructor(components: JudgingComponents) {
    this.#components = components
  }

  /** `by`: as a question is judged at first, or as where nobody answers. A store that cannot be used denies. */
  async judged(question: Question, by: typeof judge): Promise<Judgement> {
    try {
      const store = await this.#components.store.read()
      const override = await this.#components.modes.of(question.session_id, rowName(question))
      return by(question, snapshotOf(store, question, override, homedir()), this.#components.clock.now())
    } catch (error) {
      return { kind: 'deny', reason: storeProblem(error) }
    }
  }

  /** What a judgement comes to. A use of a grant is written before anybody is told of it. `otherwise`: what a denial is called. */
  async ending(question: Question, judged: Judgement, otherwise: 'deny' | 'no_ui' | 'timeout'): Promise<Ending> {
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

  /** Writes what "always" allows from now on, and answers its id. `announced`: as of the store's `change`, and throws as that. */
  async grant(
    question: Question,
    { expires_in_ms: lasts = GRANT_MS, uses }: HumanDecision,
    by: string,
    announced: (grantId: string) => Promise<void>,
  ): Promise<string> {
    const { clock, store } = this.#components
    const [id, now] = [`g_${newNonce()}`, clock.now()]
    const { grant_sha256, argv, executable, cwd } = question
    const agent = rowName(question)
    const grant: Grant = {
      id,
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
    await store.change(
      { change: 'grant', by: `human:${by}`, agent, detail: id },
      (before) => withGrant(before, grant, now),
      async () => announced(id),
    )
    return id
  }
}
