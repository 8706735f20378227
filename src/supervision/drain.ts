import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { Condition } from '../base/wait-queue.ts'
import { type WorkList, joinedWork } from '../protocol/handover.ts'
import { DRAIN_POLL_MS, DRAIN_REPORT_MS } from '../protocol/limits/daemon.ts'

/** A part of the daemon that accepts work. */
export interface DrainedPart {
  /** While true, it refuses new work. */
  drain(isDraining: boolean): void
  /** Its work, or null while that is not known. */
  readonly work: WorkList | null
}

/** Total of a list that is not known. */
const UNKNOWN: WorkList = { total: 1, work: [] }

export interface DrainInit {
  readonly ms: number
  /** Aborted to accept new work again. */
  readonly signal: AbortSignal
  /** Called at the beginning, each second, and after each change. */
  onProgress(leftMs: number, work: WorkList): void
}

/** Makes a daemon finish its work before a restart. */
export class Drain {
  readonly #deps: { readonly clock: Clock; readonly log: Logger }
  readonly #parts: readonly DrainedPart[]
  #isOn = false

  constructor(deps: { readonly clock: Clock; readonly log: Logger }, parts: readonly DrainedPart[]) {
    this.#deps = deps
    this.#parts = parts
  }

  get isOn(): boolean {
    return this.#isOn
  }

  /** Work that a stop would end now. */
  get work(): WorkList {
    return joinedWork(this.#parts.map(({ work }) => work ?? UNKNOWN))
  }

  /**
   * Refuses new work, and resolves to true when all other work has ended or the time is over. The daemon must then stop. Resolves to false
   * after the signal: the daemon accepts new work again. One drain at a time.
   */
  async run({ ms, signal, onProgress }: DrainInit): Promise<boolean> {
    const { clock, log } = this.#deps
    const begun = clock.monotonic()
    const end = begun + ms
    this.#set(true)
    log.warn({ deadline_ms: ms }, 'draining: new runs are refused until the daemon restarts')
    let [toldTotal, toldAt] = [-1, Number.NEGATIVE_INFINITY]
    while (!signal.aborted) {
      const now = clock.monotonic()
      const { work } = this
      // In the first moment, a process has not told its work yet.
      const isKnown = now - begun >= DRAIN_REPORT_MS || this.#parts.every((part) => part.work !== null)
      if (isKnown && (work.total !== toldTotal || now - toldAt >= DRAIN_REPORT_MS)) {
        onProgress(Math.max(0, Math.round(end - now)), work)
        ;[toldTotal, toldAt] = [work.total, now]
      }
      if (work.total === 0 || now >= end) return true
      await new Condition().waitAtMost({ clock, timeoutMs: Math.min(DRAIN_POLL_MS, end - now), signal })
    }
    this.#set(false)
    log.warn('the drain was cancelled: new runs are accepted again')
    return false
  }

  #set(isOn: boolean): void {
    this.#isOn = isOn
    for (const part of this.#parts) part.drain(isOn)
  }
}
