import { AppError, isAppError } from '../base/errors.ts'
import type { RequestProof } from '../executor-api/messages.ts'
import type { RunResultJson } from '../protocol/api/run-events.ts'
import { type AgentId, type MachineId, type RequestId, isRequestId } from '../protocol/ids.ts'
import { MAX_TEXT } from '../protocol/limits/wire.ts'
import type { WaitingReason, WarningKind } from '../protocol/reasons.ts'
import type { TraceContext } from '../protocol/trace-context.ts'
import { checkArgvSize } from '../protocol/wire/exec.ts'

/** All of stdin, known by its length and the hashes of its pieces before its first byte is sent, because the Request signs them. */
export interface StdinSource {
  readonly len: number
  readonly pieces: readonly Uint8Array[]
  /** Read once, at the speed of the run. Exactly `len` bytes. */
  readonly chunks: AsyncIterable<Uint8Array>
}

/** What a door asks for. */
export interface RunSpec {
  readonly agent_id: AgentId
  readonly argv: readonly string[]
  /** null = /dev/null. */
  readonly stdin: StdinSource | null
  /** Milliseconds; null = the executing agent's cap. */
  readonly timeout_ms: number | null
  /** Always refused by this version's policy; carried so that the refusal is the executor's word. */
  readonly cwd: string | null
  /** A timeout above the cap runs at the cap with a warning instead of being denied. */
  readonly clamp: boolean
  /** Default: a fresh UUIDv7. */
  readonly request_id?: RequestId
  /** Of its caller, whose events are kept apart under it; absent: of none. */
  readonly session?: string
  /** Which trace it belongs to; absent: it begins one, where traces are kept. */
  readonly trace?: TraceContext | 'not_sampled'
  /** The fan-out that it is a part of, and how that calls its host; absent: it stands alone. */
  readonly fanout?: { readonly id: string; readonly host: string }
  /** An operator's, over the object that this was made from; the executor compares the two. */
  readonly proof?: RequestProof
}

/** Nothing runs yet: somebody on the other side must allow it. */
export interface WaitingEvent {
  readonly type: 'waiting_for_approval'
  readonly request_id: RequestId
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  /** From now on. */
  readonly expires_in_ms: number
  /** Of other agents; 0: a human over there alone. */
  readonly approvals_needed: number
  readonly approvals_given: number
  readonly reason: WaitingReason
}

/** What happens before the outcome, in order. */
export type RunEvent =
  | {
      readonly type: 'started'
      readonly request_id: RequestId
      readonly agent_id: AgentId
      readonly machine_id: MachineId
      readonly pid: number
    }
  | { readonly type: 'stdout' | 'stderr'; readonly request_id: RequestId; readonly seq: number; readonly data: Uint8Array }
  | WaitingEvent
  | { readonly type: 'warning'; readonly request_id: RequestId; readonly kind: WarningKind; readonly message: string }

/** Where a run's events go. */
export interface RunSink {
  /**
   * Called for one event at a time. A promise is backpressure: what it stands for is acknowledged to the
   * executing agent only when it resolves. A rejection cancels the run.
   */
  event(event: RunEvent): void | Promise<void>
  /** The Request has left us: from now on nobody but the other side knows whether it ran. */
  sent?(): void
}

/** How a run ended: the answer of `POST /exec/run` without the output itself. */
export type RunOutcome = Omit<RunResultJson, 'stdout_b64' | 'stderr_b64' | 'next'>

/** Throws `bad_request` for what no Request can carry. */
export const checkSpec = (spec: Pick<RunSpec, 'request_id' | 'argv' | 'cwd'>): void => {
  if (spec.request_id !== undefined && !isRequestId(spec.request_id)) throw new AppError('bad_request', 'request_id: not a UUID')
  if (!spec.argv.every((token) => token.isWellFormed())) throw new AppError('bad_request', 'argv: not valid Unicode')
  const { cwd } = spec
  if (cwd !== null && !(cwd.isWellFormed() && Buffer.byteLength(cwd) <= MAX_TEXT))
    throw new AppError('bad_request', `cwd: not valid Unicode, or more than ${MAX_TEXT} bytes`)
  try {
    checkArgvSize(spec.argv)
  } catch (error) {
    if (isAppError(error, 'malformed')) throw new AppError('bad_request', error.message, { cause: error })
    throw error
  }
}

/** Stdin that is here whole, with the hashes of its pieces. */
export const bufferedStdin = (bytes: Uint8Array, pieces: readonly Uint8Array[]): StdinSource => ({
  len: bytes.length,
  pieces,
  chunks: (async function* () {
    yield bytes
  })(),
})
