import { AppError } from '../base/errors.ts'
import type { ModeOverride } from '../protocol/desk.ts'
import type { LifecycleEvent } from '../protocol/lifecycle.ts'
import type { Question, SealedAnswer } from '../protocol/question.ts'
import { type ApprovalStore, storeProblem } from './approval-store.ts'
import type { DeskLink, RunsFollowed, Waiting } from './desk-link.ts'
import type { Desk } from './desk.ts'
import type { EngineRuns, FollowedRuns } from './followed-runs.ts'
import { tokenBytes } from './store-shape.ts'

export interface LocalDeskLinkComponents {
  readonly desk: Desk
  readonly runs: FollowedRuns
  readonly store: ApprovalStore
}

/** The way of an engine to the desk of its own process. */
export class LocalDeskLink implements DeskLink {
  readonly #components: LocalDeskLinkComponents
  readonly #name: string
  #key: Uint8Array | null = null
  #runs: EngineRuns | null = null

  /** `name`: what the engine calls itself. */
  constructor(components: LocalDeskLinkComponents, init: { readonly name: string }) {
    this.#components = components
    this.#name = init.name
  }

  async ask(question: Question, signal: AbortSignal, onPending: (waiting: Waiting) => void): Promise<SealedAnswer> {
    const { desk, store } = this.#components
    const answer = await desk.ask(question, this.#name, signal, onPending)
    this.#key = tokenBytes(await store.read())
    return answer
  }

  event(event: LifecycleEvent): void {
    this.#runs?.heard(event)
    this.#components.desk.event(event)
  }

  serve(runs: RunsFollowed): void {
    this.#runs = this.#components.runs.engine((followed) => runs.follow(followed))
    for (const event of runs.running) this.#runs.heard(event)
  }

  async override(session: string, agent: string | null): Promise<ModeOverride | null> {
    return this.#components.desk.modes.of(session, agent).catch((error: unknown) => {
      throw new AppError('approval_unavailable', storeProblem(error), { cause: error })
    })
  }

  approvalKey(): Uint8Array {
    if (this.#key === null) throw new AppError('approval_unavailable')
    return this.#key
  }
}
