import type { ModeOverride } from '../protocol/desk/messages.ts'
import type { ApprovalRequest, SealedAnswer } from '../protocol/desk/approval-request.ts'
import type { LifecycleEvent } from '../protocol/events/lifecycle.ts'

/** Tells an engine that its request awaits an approver. */
export interface WaitNotice {
  readonly question_id: string
  readonly expires_at_ms: number
}

/** Runs of an engine. It reports their output only while an approval client shows them. */
export interface LiveRunSource {
  readonly running: readonly LifecycleEvent[]
  /** Replaces the set of followed runs (see `runOf`). The engine reports their output so far at once, and then new output. */
  follow(runs: readonly string[]): void
}

/**
 * How an engine reaches its approval service, in the same process or another. An answer alone allows nothing: policy verifies it with
 * `approvalKey`.
 */
export interface DeskLink {
  /**
   * Resolves with the answer and its MAC. `onPending` is called at most once, before the answer. If the signal aborts, the request is
   * withdrawn and the signal's reason is thrown. Throws `approval_unavailable` (which denies) if the service is missing, does not answer or
   * stops.
   */
  ask(question: ApprovalRequest, signal: AbortSignal, onPending: (waiting: WaitNotice) => void): Promise<SealedAnswer>
  /** Sends a run event to the watchers, if a service is connected. */
  event(event: LifecycleEvent): void
  /** Registers the runs of this engine; called once. */
  serve(runs: LiveRunSource): void
  /**
   * Modes that an approver set for this session or saved for this agent, or null. Without a service, the saved modes count. Throws
   * `approval_unavailable` if they cannot be read, or if a service that was connected is gone: its modes may have been narrower.
   */
  override(session: string, agent: string | null): Promise<ModeOverride | null>
  /** Key of the MAC of the last answer: the bytes of the store's socket token. Throws `approval_unavailable` before the first answer. */
  approvalKey(): Uint8Array
}
