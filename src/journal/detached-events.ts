import type { DetachedAsk } from '../protocol/detached.ts'
import type { RunKey } from './run-key.ts'

/** Its owner reads the output of a detached run. */
export interface AttachEvent extends RunKey {
  readonly event: 'attach'
  /** Bytes of output that it does not want again. */
  readonly from: number
}

/** The output of a detached run is about to be removed. */
export interface ForgetEvent extends RunKey {
  readonly event: 'forget'
  readonly by: 'requester' | 'time'
}

/** A question of ours about a detached run that is about to be signed. The ids are those of whom it is for. */
export interface DetachedAskedEvent extends RunKey {
  readonly event: 'detached_asked'
  readonly ask: DetachedAsk
  readonly from: number
}

/** What is asked about runs that outlive their callers, on either side. */
export type DetachedEvent = AttachEvent | ForgetEvent | DetachedAskedEvent
