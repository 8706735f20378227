import type { ExecExit } from '../protocol/exec.ts'
import type { RequestId } from '../protocol/ids.ts'
import type { WarningKind } from '../protocol/reasons.ts'
import type { Received } from './received.ts'
import type { RunOutcome } from './run-spec.ts'
import type { RunPeer } from './wire.ts'

/** What was seen of a run here. */
export interface SeenOfRun {
  readonly requestId: RequestId
  readonly peer: RunPeer
  readonly received: Received
  readonly elapsedMs: number
  readonly warnings: readonly WarningKind[]
}

/** Ended before its process began: there is nothing that could be called well. */
const ran = ({ code, signal }: ExecExit): boolean => code !== null || signal !== null

/** What its caller is told. `exit`: null where none came that could be believed; `problem`: why the outcome is incomplete, or null. */
export const outcomeOf = (exit: ExecExit | null, problem: string | null, seen: SeenOfRun): RunOutcome => {
  const { stdout, stderr } = seen.received
  return {
    ok: problem === null && exit !== null && exit.denial_reason === null && ran(exit),
    request_id: seen.requestId,
    agent_id: seen.peer.agentId,
    machine_id: seen.peer.machineId,
    code: exit?.code ?? null,
    signal: exit?.signal ?? null,
    duration_ms: exit?.duration_ms ?? Math.round(seen.elapsedMs),
    stdout_bytes_total: exit?.stdout_bytes_total ?? stdout.bytes,
    stderr_bytes_total: exit?.stderr_bytes_total ?? stderr.bytes,
    truncated: exit?.truncated ?? false,
    incomplete: problem !== null,
    denial_reason: exit?.denial_reason ?? null,
    warnings: [...seen.warnings],
    ...(problem === null ? {} : { message: problem }),
  }
}
