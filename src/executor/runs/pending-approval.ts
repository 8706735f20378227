import type { Clock } from '../../base/clock.ts'
import type { Permit } from '../../policy/permit.ts'
import type { Slot } from '../../policy/slots.ts'
import type { RunningProcess } from '../../process/running-process.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_APPROVAL_WAIT_MS } from '../../protocol/limits/approvals.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import { type ExecFrame, execFrame } from '../../protocol/wire/exec.ts'
import type { EndCause, RunRecorder } from './execution.ts'

export interface AdmittedRun {
  readonly permit: Permit
  readonly report: RunRecorder<RunningProcess, Uint8Array>
  readonly slot: Slot
}

export interface RefusedRun {
  readonly reason: DenialReason
  readonly exit: Uint8Array
}

/** What a requester learns about its waiting run. */
export interface WaitingState extends Pick<Extract<ExecFrame, { type: 'waiting' }>, 'approvals_needed' | 'approvals_given' | 'reason'> {
  /** Monotonic time. */
  readonly expiresAt: number
}

/** A run that needs an approval. */
export interface PendingApproval {
  /**
   * Never rejects for a withdrawal. `tell` is called for each change of the state. `stdin` resolves when all of it has arrived; null if
   * there is none.
   */
  settle(tell: (state: WaitingState) => void, stdin: Promise<Uint8Array> | null): Promise<AdmittedRun | RefusedRun>
  /** Withdraws the request; `settle` resolves soon after. */
  withdraw(cause: EndCause): void
}

export interface ApprovalWaitInit {
  readonly awaited: PendingApproval
  readonly requestId: RequestId
  /** Sends a frame to the requester if it is connected. */
  send(frame: Uint8Array): void
}

/** A run that waits for an approval. It holds no slot, and ending it withdraws the request. */
export class ApprovalWait {
  readonly #clock: Clock
  readonly #init: ApprovalWaitInit
  #state: WaitingState | null = null
  #ended = false
  #withdrawn: EndCause | null = null

  constructor(deps: { readonly clock: Clock }, init: ApprovalWaitInit) {
    this.#clock = deps.clock
    this.#init = init
  }

  get withdrawn(): EndCause | null {
    return this.#withdrawn
  }

  async settle(stdin: Promise<Uint8Array> | null = null): Promise<AdmittedRun | RefusedRun> {
    try {
      return await this.#init.awaited.settle((state) => this.#emit(state), stdin)
    } finally {
      this.#ended = true
    }
  }

  /** False if the wait is over or was withdrawn before. */
  withdraw(cause: EndCause): boolean {
    if (this.#ended || this.#withdrawn !== null) return false
    this.#withdrawn = cause
    this.#init.awaited.withdraw(cause)
    return true
  }

  /** Frames for a stream that joins now. */
  frames(): Uint8Array[] {
    if (this.#state === null || this.#ended) return []
    const { expiresAt, ...state } = this.#state
    const left = Math.max(0, Math.round(expiresAt - this.#clock.monotonic()))
    const expires_in_ms = Math.min(left, MAX_APPROVAL_WAIT_MS)
    return [execFrame.encode({ type: 'waiting', request_id: this.#init.requestId, expires_in_ms, ...state })]
  }

  /** Not stored in the outbox, because a later stream receives the state of that time. */
  #emit(state: WaitingState): void {
    if (this.#ended) return
    this.#state = state
    for (const frame of this.frames()) this.#init.send(frame)
  }
}
