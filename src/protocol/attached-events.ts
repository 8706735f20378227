import type { AskedState, KeptThere } from './asked-run.ts'
import type { RunEventJson, Told } from './run-events.ts'

interface End {
  readonly from: number
  /** Where to go on. */
  readonly next: number
}

/**
 * One line of the streamed output of a detached run. The last one is `exit` with what its signed Exit says, `end` where
 * there is none (it was lost, or goes on and nobody follows), or `error`.
 */
export type AttachedEventJson =
  | ({ readonly type: 'state'; readonly request_id: string; readonly state: AskedState; readonly from: number } & KeptThere)
  | Extract<RunEventJson, { type: 'started' | 'warning' }>
  | { readonly type: 'stdout' | 'stderr'; readonly request_id: string; readonly offset: number; readonly data_b64: string }
  | { readonly type: 'reattached'; readonly request_id: string; readonly offset: number }
  | (Omit<Extract<RunEventJson, { type: 'exit' }>, 'next'> & End)
  | ({ readonly type: 'end'; readonly request_id: string; readonly state: AskedState } & End)
  | ({
      readonly type: 'error'
      readonly request_id: string
      readonly error: string
      readonly message: string
      readonly next: number
    } & Told)
