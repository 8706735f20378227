import type { ReachedTarget } from '../../executor-api/local.ts'
import type { RulesJson } from '../../protocol/api/rules.ts'
import type { RunPart } from '../../protocol/api/run-events.ts'
import type { RequestId } from '../../protocol/ids.ts'

/** A command for another agent, which its ACL allows or not. */
export interface TargetRequest {
  /** As `x0x exec` takes it: a name, an id or the beginning of one. */
  readonly target: string
  readonly argv: readonly string[]
  /** Null: /dev/null. */
  readonly stdin: Uint8Array | null
  readonly timeout_ms: number
  readonly request_id: RequestId
  /** A detached run. */
  readonly detach: boolean
}

/** Where the mesh is asked: this host's daemon. */
export interface TargetRunner {
  /** What happens, in order; the last is an `exit` or an `error`. Aborting it gives the run up. Throws an `AppError`. */
  run(request: TargetRequest, signal: AbortSignal): AsyncIterable<RunPart>
  /** Ends the run; its `exit` still comes. */
  cancel(request: Pick<TargetRequest, 'request_id' | 'detach'>): Promise<void>
  /** Links with the target and proves both ends; runs nothing. Throws why it is not reached. */
  reach(target: string, signal: AbortSignal): Promise<ReachedTarget>
  /** Asks the target which commands it allows. Throws why it does not answer. */
  rules(target: string, signal: AbortSignal): Promise<RulesJson>
  /** Whom these words mean, as this host's contacts have it; asks none of them. Throws what is wrong with the words. */
  select(words: readonly string[], signal: AbortSignal): Promise<readonly SelectedTarget[]>
}

/** An agent that some words mean. `host`: the contact's name, else the id. */
export interface SelectedTarget {
  readonly host: string
  readonly agent_id: string
}
