import type { LifecycleEvent } from '../../protocol/lifecycle.ts'
import type { PageDecision, PageNews } from '../../protocol/page.ts'

/** Hears what the approval service tells an approver who has subscribed. */
export type DeskListener = (news: PageNews) => void

/** A subscription: as long as it lives, somebody is there to be asked. */
export interface DeskWatch {
  /** Resolves when the desk is gone, with why. */
  readonly ended: Promise<string>
  /** Throws `conflict` where another was first, and what else the desk refuses. */
  decide(decision: PageDecision): Promise<object>
  /** Hears what these runs write, and of no others; answers those that go on. */
  follow(runs: readonly string[]): Promise<readonly LifecycleEvent[]>
  close(): void
}

/** The way to the desk of this user. */
export interface PageDesk {
  /** Throws `daemon_unreachable` where none runs. */
  watch(listener: DeskListener): Promise<DeskWatch>
}
