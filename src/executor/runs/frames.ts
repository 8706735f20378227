import type { ExecutorChannel } from '../../executor-api/channel.ts'
import type { ToExecutor, ToNetwork } from '../../executor-api/messages.ts'
import type { RunCaps } from '../../policy/permit.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { leftBehindText, type WarningKind } from '../../protocol/reasons.ts'
import type { ExecFrame } from '../../protocol/wire/exec.ts'
import { NO_BYTES } from '../../protocol/wire/schema.ts'

type OutletChannel = Pick<ExecutorChannel<ToExecutor, ToNetwork>, 'closed' | 'full' | 'send' | 'sendAndRelease' | 'drained'>

/** Writes the frames of one run to the stream of its requester. */
export class PeerStreamWriter {
  readonly #channel: OutletChannel
  readonly #run: number
  readonly #onClosed: () => void
  #closed = false

  constructor(deps: { channel: OutletChannel }, init: { run: number; onClosed: () => void }) {
    this.#channel = deps.channel
    this.#run = init.run
    this.#onClosed = init.onClosed
  }

  /** True while the network process is behind. */
  get full(): boolean {
    return !this.#closed && this.#channel.full && !this.#channel.closed
  }

  /** Sends one frame, which may be given in parts. */
  send(...frame: readonly Uint8Array[]): void {
    if (!this.#closed) this.#channel.send({ type: 'run_frame', run: this.#run, frame: NO_BYTES }, ...frame)
  }

  /** As `send`. Calls `released` once nothing reads the frame any more, see `ExecutorChannel.sendAndRelease`. */
  sendAndRelease(released: () => void, ...frame: readonly Uint8Array[]): void {
    if (this.#closed) released()
    else this.#channel.sendAndRelease(released, { type: 'run_frame', run: this.#run, frame: NO_BYTES }, ...frame)
  }

  async drained(): Promise<void> {
    return this.#channel.drained()
  }

  /** Closes the stream; later frames are dropped. */
  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#channel.send({ type: 'run_closed', run: this.#run })
    this.#onClosed()
  }
}

/** Default texts of warnings; `warningText` is more precise. */
export const WARNING_TEXT: Readonly<Record<WarningKind, string>> = {
  stdout_approaching_cap: 'stdout has passed its warning threshold',
  stderr_approaching_cap: 'stderr has passed its warning threshold',
  duration_approaching_cap: 'the run time has passed its warning threshold',
  stdout_cap_hit: 'stdout reached its limit; the rest is counted and dropped',
  stderr_cap_hit: 'stderr reached its limit; the rest is counted and dropped',
  duration_cap_hit: 'the time limit was reached; the process received SIGTERM',
  timeout_clamped: 'the timeout is above the limit; the limit applies',
  cancelled: 'the requester cancelled the run',
  lease_expired: 'the requester stopped responding',
  peer_disconnected: 'the connection to the requester was lost',
  stdin_mismatch: 'stdin differs from what the request announced',
  descendant_held_output: 'a descendant of the process keeps its output open; reading has stopped',
  output_lost:
    'the end of its output was lost: a descendant of the process was still writing when reading stopped, or the disk that keeps it is full',
  daemon_stopping: 'the executing daemon is stopping',
  access_revoked: 'the requester may no longer run commands on this machine',
  ended_by_operator: 'the operator of the executing host ended the run',
  descendants_may_survive: 'a process of the run may still be running: it was not found, or could not be killed',
  descendants_ended: 'the command ended and left processes running; they were ended',
  target_draining: 'the target is draining; the requester asks again when it is back',
  session_recorded: 'the target records what this session shows, and not what is typed',
  session_watchable: 'operators of the target may look on',
  session_watched: 'an operator of the target looks on',
  recording_failed: 'the target could not continue the required recording, and ended the program',
}

export interface Warning {
  readonly kind: WarningKind
  /** See `ProcessHandlers.onWarning`. */
  readonly amount: number | null
}

const nearEndText = ({ warn_duration_ms, timeout_ms }: RunCaps): string =>
  `the run has taken ${warn_duration_ms / 1000} s; it is ended at ${timeout_ms / 1000} s`

/** `caps`: null if they are not known. */
const warningText = ({ kind, amount }: Warning, caps: RunCaps | null): string => {
  if (kind === 'duration_approaching_cap' && caps !== null) return nearEndText(caps)
  return kind === 'descendants_ended' && amount !== null ? leftBehindText(amount) : WARNING_TEXT[kind]
}

export const warningFrame = (request_id: RequestId, warning: Warning, caps: RunCaps | null): ExecFrame => ({
  type: 'warning',
  request_id,
  kind: warning.kind,
  message: warningText(warning, caps),
})

/** The amount under its field name in audit log and diagnostics. */
export const amountsOf = ({ kind, amount }: Warning): { readonly bytes: number | null; readonly processes?: number } =>
  kind === 'descendants_ended' && amount !== null ? { bytes: null, processes: amount } : { bytes: amount }
