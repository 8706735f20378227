import { errorText } from '../base/errors.ts'
import { equalBytes } from '../identity/hash.ts'
import { verifyAgent } from '../identity/signing.ts'
import type { AgentId, MachineId, RequestId } from '../protocol/ids.ts'
import type { WarningKind } from '../protocol/reasons.ts'
import { EXEC_EXIT_DOMAIN, type ExecExit, execExit } from '../protocol/wire/exec.ts'
import type { OutputName } from '../protocol/reasons.ts'
import type { ReceivedStream } from './received.ts'
import type { RunOutcome } from './run-spec.ts'
import type { RunPeer } from './transport.ts'

/** A Request or Exit with the signature of its agent's executor. */
export interface SignedBody {
  readonly body: Uint8Array
  readonly signature: Uint8Array
}

/** The values that an Exit must contain. */
export interface Expected {
  readonly requestId: RequestId
  /** SHA-256 of the exact bytes of the Request. */
  readonly requestSha256: Uint8Array
  /** The target's agent and machine, as the link proved them. */
  readonly from: Omit<RunPeer, 'number'>
  /** The requester. */
  readonly to: { readonly agentId: AgentId; readonly machineId: MachineId }
}

/** Returns the Exit if the target signed it for this Request. Otherwise returns the problem. */
export const readExit = (frame: SignedBody, expected: Expected): ExecExit | string => {
  try {
    return answerTo(frame, expected)
  } catch (error) {
    return errorText(error)
  }
}

const answerTo = (frame: SignedBody, expected: Expected): ExecExit | string => {
  if (!verifyAgent(expected.from.agentPublicKey, EXEC_EXIT_DOMAIN, frame.body, frame.signature))
    return 'the Exit is not signed by the agent'
  const exit = execExit.decode(frame.body)
  const problem = partiesProblem(exit, expected)
  return problem === null ? exit : `the Exit ${problem}`
}

type Parties = Pick<ExecExit, 'request_id' | 'request_sha256' | 'from_agent' | 'from_machine' | 'to_agent' | 'to_machine'>

/** Returns why the signed bytes do not answer this Request, or null. */
export const partiesProblem = (answer: Parties, expected: Expected): string | null => {
  if (answer.request_id !== expected.requestId || !equalBytes(answer.request_sha256, expected.requestSha256))
    return 'answers another request'
  if (answer.from_agent !== expected.from.agentId || answer.from_machine !== expected.from.machineId) return 'comes from another agent'
  if (answer.to_agent !== expected.to.agentId || answer.to_machine !== expected.to.machineId) return 'is meant for another agent'
  return null
}

/** The received output. `before` counts bytes at its beginning that were skipped. `bytes` includes them. */
export type ReceivedOutput = Readonly<Record<OutputName, Pick<ReceivedStream, 'bytes' | 'sha256'> & { readonly before?: number }>>

/** Warnings that a limit cut something. The remaining output is complete. */
const CUTS: readonly WarningKind[] = ['stdout_cap_hit', 'stderr_cap_hit', 'duration_cap_hit']

/** Returns null if exactly the output that the Exit names was received, except for bytes that a limit cut. Otherwise returns the problem. */
export const compareOutput = (exit: ExecExit, received: ReceivedOutput, warnings: readonly WarningKind[]): string | null => {
  for (const name of ['stdout', 'stderr'] as const) {
    const { bytes, sha256, before = 0 } = received[name]
    const total = exit[`${name}_bytes_total`]
    if (bytes > total || (bytes < total && !exit.truncated)) return `${bytes} of ${total} bytes of ${name} arrived`
    // The hash covers all output, so it cannot be checked if bytes were skipped.
    if (before === 0 && !equalBytes(sha256, exit[`${name}_sha256`])) return `${name} differs from what the agent sent`
  }
  if (warnings.includes('output_lost') || (exit.truncated && !CUTS.some((kind) => warnings.includes(kind))))
    return 'the target lost the end of the output'
  return null
}

/** Observations of the requester about a run. */
export interface ReceivedOfRun {
  readonly requestId: RequestId
  readonly peer: RunPeer
  readonly received: ReceivedOutput
  readonly elapsedMs: number
  readonly warnings: readonly WarningKind[]
  /** Time spent waiting for an approval, or null if the run did not wait. */
  readonly waitedMs: number | null
  /** True if the Request certainly did not reach the target. */
  readonly neverArrived: boolean
}

/** False if the run ended before its process started. */
const ran = ({ code, signal }: ExecExit): boolean => code !== null || signal !== null

/** Builds the outcome of a run. `exit` is null without a valid Exit. `problem` says why the outcome is incomplete, or is null. */
export const outcomeOf = (exit: ExecExit | null, problem: string | null, seen: ReceivedOfRun): RunOutcome => {
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
    ...(seen.waitedMs === null ? {} : { waited_ms: seen.waitedMs }),
    ...(exit === null && seen.neverArrived ? { never_arrived: true } : {}),
    ...(problem === null ? {} : { message: problem }),
  }
}
