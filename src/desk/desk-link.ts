import type { ModeOverride } from '../protocol/desk/messages.ts'
import type { ApprovalRequest, SealedAnswer } from '../protocol/desk/approval-request.ts'
import type { LifecycleEvent } from '../protocol/events/lifecycle.ts'

/** What an engine is told once somebody must be waited for. */
export interface WaitNotice {
  readonly question_id: string
  readonly expires_at_ms: number
}

/** Runs of an engine, whose output is told only while somebody looks at it. */
export interface LiveRunSource {
  /** Those that go on now. */
  readonly running: readonly LifecycleEvent[]
  /** These are followed from now on, by `runOf`, and no others: what they have written is told at once, and as they write. */
  follow(runs: readonly string[]): void
}

/**
 * How an engine asks its desk, wherever that is. The desk's word is not enough to run anything: the answer goes back through
 * policy, which opens it with `approvalKey`.
 */
export interface DeskLink {
  /**
   * The desk's answer, with a MAC. `onPending` is called at most once, before the answer. When the signal is aborted the question is
   * withdrawn, and its reason is thrown. Throws `approval_unavailable` where there is no desk, it does not answer, or it dies
   * meanwhile: that is a denial.
   */
  ask(question: ApprovalRequest, signal: AbortSignal, onPending: (waiting: WaitNotice) => void): Promise<SealedAnswer>
  /** Tells those who watch; what cannot be told is lost. */
  event(event: LifecycleEvent): void
  /** From then on `runs` hears which of them are followed. Once. */
  serve(runs: LiveRunSource): void
  /**
   * What a human has set for this session, or else saved for this agent; null: nothing. Where no desk is there,
   * what is saved. Throws `approval_unavailable` where that cannot be said, or a desk was there and went away: what it may have
   * narrowed must not run wider.
   */
  override(session: string, agent: string | null): Promise<ModeOverride | null>
  /** Key of the MAC of the last answer: the bytes of the store's socket token. Throws `approval_unavailable` while none is known. */
  approvalKey(): Uint8Array
}
