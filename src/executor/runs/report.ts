import type { Containment, DenialReason, WarningKind } from '../../protocol/reasons.ts'
import type { ExitFacts } from './run-facts.ts'

/** A program that was started. */
export interface ProgramStart {
  readonly pid: number
  readonly containment: Containment
}

/** What is told of one run, in the right places and the right order: journal, counters, log, and its last frame. */
export interface RunReport<Started, Last> {
  /** True when the line is on disk, so that the program may be started. */
  requested(): Promise<boolean>
  /** It will run, or could have: nothing stands in its way any more. */
  allowed(): void
  started(program: Started): void
  /** `bytes`: the stream's total, null where the warning is not about a stream. */
  warned(kind: WarningKind, bytes: number | null): void
  /**
   * Answers the last frame, when the line is on disk as far as the disk allows. `detail` stays on this host. `ran`: what
   * was killed before anybody heard of it.
   */
  denied(reason: DenialReason, detail: string | null, ran?: ProgramStart | null): Promise<Last>
  /** Answers the last frame, when the line is on disk as far as the disk allows: the outcome is told in any case. */
  ended(facts: ExitFacts): Promise<Last>
  /** Once, for each `started`: what it held is free. */
  settled(how: { readonly cancelled: boolean }): void
}
