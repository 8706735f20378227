import { LEASE_RENEW_MS } from '../protocol/limits.ts'

/** The requester checks for signs of life at this interval. Silence is counted in checks and not in time, so that a machine that slept counts one. */
export const LIVENESS_CHECK_MS = 500
/** Checks without any byte after an unanswered renewal before the transport counts as silent: 1.5 s, which leaves 1.5 s of the lease to dial again. */
export const SILENT_CHECKS = 3

const RENEW_EVERY_CHECKS = LEASE_RENEW_MS / LIVENESS_CHECK_MS

/** Whether anything still comes from the other side of a run, whose network half answers renewals itself, however quiet the run is. */
export class Liveness {
  /** 0: everything was answered; n: what was not was sent n - 1 checks ago. */
  #unanswered = 0
  /** `RunTransport.heard` at the last check. */
  #heard = 0
  #checks = 0

  /** A renewal is due at the check that was just made. */
  get renewalDue(): boolean {
    return this.#checks % RENEW_EVERY_CHECKS === 0
  }

  /** Something was sent that the other side answers. */
  asked(): void {
    if (this.#unanswered === 0) this.#unanswered = 1
  }

  answered(): void {
    this.#unanswered = 0
  }

  /** Once in `LIVENESS_CHECK_MS`. `heard`: that of the transport now; null: there is none. */
  check(heard: number | null): 'heard' | 'waiting' | 'silent' {
    this.#checks += 1
    if (heard !== null && heard !== this.#heard) {
      this.#heard = heard
      this.#unanswered = Math.min(this.#unanswered, 1)
      return 'heard'
    }
    return this.#unanswered > 0 && ++this.#unanswered > SILENT_CHECKS ? 'silent' : 'waiting'
  }
}
