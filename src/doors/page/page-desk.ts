import type { Flood, PendingQuestion } from '../../protocol/desk.ts'
import type { LifecycleEvent } from '../../protocol/lifecycle.ts'
import type { PageDecision, PageSettled } from '../../protocol/page.ts'

/** What a desk tells a human who has subscribed. */
export interface DeskListener {
  question(question: PendingQuestion): void
  settled(settled: PageSettled): void
  flood(flood: Flood): void
  event(event: LifecycleEvent): void
}

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
