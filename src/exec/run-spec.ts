import { AppError, isAppError } from '../base/errors.ts'
import type { RequestProof } from '../executor-api/messages.ts'
import type { RunResultJson } from '../protocol/api/run-events.ts'
import { type AgentId, type MachineId, type RequestId, isRequestId } from '../protocol/ids.ts'
import { MAX_TEXT } from '../protocol/limits/wire.ts'
import type { WaitingReason, WarningKind } from '../protocol/reasons.ts'
import type { TraceContext } from '../protocol/trace-context.ts'
import { checkArgvSize } from '../protocol/wire/exec.ts'
import type { WireTerminalSize } from '../protocol/wire/terminal.ts'

/** Stdin of a run. Its length and the hashes of its pieces are known before the first byte is sent, because the Request signs them. */
export interface StdinSource {
  readonly len: number
  readonly pieces: readonly Uint8Array[]
  /** Exactly `len` bytes. They are read once, at the speed of the run. */
  readonly chunks: AsyncIterable<Uint8Array>
}

/** Text that the user of a terminal typed, or the new size of the terminal. */
export type TerminalInput = { readonly data: Uint8Array } | WireTerminalSize

/** A terminal that a client shows. */
export interface TerminalSpec extends WireTerminalSize {
  /** Value of the variable TERM on the target. */
  readonly term: string
  /** Read at the speed of the program. Its end cancels the run. */
  readonly input: AsyncIterable<TerminalInput>
}

/** A run that a client requests. */
export interface RunSpec {
  readonly agent_id: AgentId
  readonly argv: readonly string[]
  /** Null is /dev/null. */
  readonly stdin: StdinSource | null
  /** Terminal of the run. Absent for pipes. */
  readonly terminal?: TerminalSpec
  /** Milliseconds. Null is the target's limit. */
  readonly timeout_ms: number | null
  /** Always denied. It is sent so that the target's executor denies and records it. */
  readonly cwd: string | null
  /** A timeout above the limit is reduced to it with a warning, instead of a denial. */
  readonly clamp: boolean
  /** Default: a new UUIDv7. */
  readonly request_id?: RequestId
  /** Run label, by which the client's events are grouped. */
  readonly session?: string
  /** Trace of the client. If absent, the run starts its own trace. */
  readonly trace?: TraceContext | 'not_sampled'
  /** The fan-out of this run, and the name of its host there. */
  readonly fanout?: { readonly id: string; readonly host: string }
  /** Proof of an operator over the client's request object. The executor checks it. */
  readonly proof?: RequestProof
}

/** The target waits for an approval before it starts the run. */
export interface WaitingEvent {
  readonly type: 'waiting_for_approval'
  readonly request_id: RequestId
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  /** Milliseconds from now. */
  readonly expires_in_ms: number
  /** Number of agents that must approve, or 0 if only a person at the target must. */
  readonly approvals_needed: number
  readonly approvals_given: number
  readonly reason: WaitingReason
}

/** Events before the outcome, in order. */
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

/** Receives the events of a run. */
export interface RunSink {
  /** Called for one event at a time. The event is acknowledged to the target only after the returned promise resolves, which slows the target down. A rejection cancels the run. */
  event(event: RunEvent): void | Promise<void>
  /** Called after the Request was sent. From now on only the target knows whether it ran. */
  sent?(): void
  /** Called when the target denied the Request for now. It did not run and will be sent again. */
  notSent?(): void
  /** Called when the connection is lost, and when it is there again. */
  connection?(state: 'disconnected' | 'resumed'): void
}

/** The result of `POST /exec/run` without the output. */
export type RunOutcome = Omit<RunResultJson, 'stdout_b64' | 'stderr_b64' | 'next'>

/** Throws `bad_request` for values that a Request cannot carry. */
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

/** Stdin that is in memory, with the hashes of its pieces. */
export const bufferedStdin = (bytes: Uint8Array, pieces: readonly Uint8Array[]): StdinSource => ({
  len: bytes.length,
  pieces,
  chunks: (async function* () {
    yield bytes
  })(),
})
