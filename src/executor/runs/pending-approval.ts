import type { Clock } from '../../base/clock.ts'
import type { Permit } from '../../policy/permit.ts'
import type { Slot } from '../../policy/slots.ts'
import type { RunningProcess } from '../../process/running-process.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_APPROVAL_WAIT_MS } from '../../protocol/limits/approvals.ts'
import type { DenialReason } from '../../protocol/reasons.ts'
import { type ExecFrame, execFrame } from '../../protocol/wire/exec.ts'
import type { EndCause, RunRecorder } from './execution.ts'

/** It may run. */
export interface AdmittedRun {
  readonly permit: Permit
  readonly report: RunRecorder<RunningProcess, Uint8Array>
  readonly slot: Slot
}

/** It may not. */
export interface RefusedRun {
  readonly reason: DenialReason
  /** The encoded Exit. */
  readonly exit: Uint8Array
}

/** What a requester is told of its run while somebody must allow it. */
export interface WaitingState extends Pick<Extract<ExecFrame, { type: 'waiting' }>, 'approvals_needed' | 'approvals_given' | 'reason'> {
  /** Of the monotonic clock. */
  readonly expiresAt: number
}

/** Somebody must allow it. */
export interface PendingApproval {
  /** Never rejects for a withdrawal. `tell` is called whenever the state has changed. `stdin`: when all of it has come; null: it has none. */
  settle(tell: (state: WaitingState) => void, stdin: Promise<Uint8Array> | null): Promise<AdmittedRun | RefusedRun>
  /** Takes the question back at once; `settle` answers soon. */
  withdraw(cause: EndCause): void
}

export interface ApprovalWaitInit {
  readonly awaited: PendingApproval
  readonly requestId: RequestId
  /** Sends a frame to the requester, where there is one now. */
  send(frame: Uint8Array): void
}

/** A run that is not allowed yet: it holds no slot, and whatever ends it takes the question back. */
export class ApprovalWait {
  readonly #clock: Clock
  readonly #init: ApprovalWaitInit
  #state: WaitingState | null = null
  #ended = false
  /** What ended it while it waited. */
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

  /** False when it is over, or was withdrawn before. */
  withdraw(cause: EndCause): boolean {
    if (this.#ended || this.#withdrawn !== null) return false
    this.#withdrawn = cause
    this.#init.awaited.withdraw(cause)
    return true
  }

  /** What a stream that joins now is told. */
  frames(): Uint8Array[] {
    if (this.#state === null || this.#ended) return []
    const { expiresAt, ...state } = this.#state
    const left = Math.max(0, Math.round(expiresAt - this.#clock.monotonic()))
    const expires_in_ms = Math.min(left, MAX_APPROVAL_WAIT_MS)
    return [execFrame.encode({ type: 'waiting', request_id: this.#init.requestId, expires_in_ms, ...state })]
  }

  /** Not a note of the outbox: a later stream is told what is so then. */
  #emit(state: WaitingState): void {
    if (this.#ended) return
    this.#state = state
    for (const frame of this.frames()) this.#init.send(frame)
  }
}
