import type { RequestId } from '../../protocol/ids.ts'
import type { RunPart } from '../../protocol/run-events.ts'

/** A command for another agent, which its ACL allows or not. */
export interface TargetRequest {
  /** As `x0x exec` takes it: a name, an id or the beginning of one. */
  readonly target: string
  readonly argv: readonly string[]
  /** Null: /dev/null. */
  readonly stdin: Uint8Array | null
  readonly timeout_ms: number
  readonly request_id: RequestId
}

/** Where the mesh is asked: this host's daemon. */
export interface TargetRunner {
  /** What happens, in order; the last is an `exit` or an `error`. Aborting it gives the run up. Throws an `AppError`. */
  run(request: TargetRequest, signal: AbortSignal): AsyncIterable<RunPart>
  /** Ends the run; its `exit` still comes. */
  cancel(id: RequestId): Promise<void>
}
