import type { Clock } from '../../base/clock.ts'
import { isAppError } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { MAX_ATTACHED_PER_AGENT } from '../../protocol/limits/detached.ts'
import { pause } from './host-replies.ts'

/** Attach slots of a host that waits for ends may use. The others are for readers. */
const MAX_ATTACHED_WAITS = MAX_ATTACHED_PER_AGENT / 2
/** Attaches of a moment, to fetch an Exit that exists, per host. */
const MAX_FETCHING = 4
/** How soon a wait without a slot asks again. All waits of one host together ask at a quarter of the rate that it allows. */
const ASK_AGAIN_MS = 2_000
const ASKS_APART_MS = 250

interface Host {
  readonly fetching: Semaphore
  attached: number
  asking: number
  fetches: number
}

/** Schedules the waits for ends of detached runs per host. Some are attached and receive the end at once. The others poll. */
export class CompletionWaits {
  readonly #clock: Clock
  readonly #hosts = new Map<MachineId, Host>()

  constructor(components: { readonly clock: Clock }) {
    this.#clock = components.clock
  }

  /** Takes an attach slot and returns the function that releases it, or null if all are taken. */
  enter(machineId: MachineId): (() => void) | null {
    if (this.#at(machineId).attached >= MAX_ATTACHED_WAITS) return null
    return this.#count(machineId, 'attached')
  }

  /** Runs `work` in a slot for fetching an Exit. Throws the signal's reason and the errors of `work`. */
  async fetch<T>(machineId: MachineId, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const leave = this.#count(machineId, 'fetches')
    try {
      return await this.#at(machineId).fetching.use(signal, work)
    } finally {
      leave()
    }
  }

  /** Resolves when the host may be asked again. Throws the signal's reason. */
  async pause(machineId: MachineId, signal: AbortSignal): Promise<void> {
    const leave = this.#count(machineId, 'asking')
    try {
      await pause(this.#clock, Math.max(ASK_AGAIN_MS, this.#at(machineId).asking * ASKS_APART_MS), signal)
    } finally {
      leave()
    }
  }

  #at(machineId: MachineId): Host {
    return this.#hosts.get(machineId) ?? { fetching: new Semaphore({ limit: MAX_FETCHING }), attached: 0, asking: 0, fetches: 0 }
  }

  #count(machineId: MachineId, what: 'attached' | 'asking' | 'fetches'): () => void {
    const host = this.#at(machineId)
    this.#hosts.set(machineId, host)
    host[what] += 1
    return () => {
      host[what] -= 1
      if (host.attached + host.asking + host.fetches === 0) this.#hosts.delete(machineId)
    }
  }
}

/** Whether all attach slots of the host are taken, by this agent or by others. */
export const isFullThere = (error: unknown): boolean =>
  isAppError(error, 'conflict') && error.data['denial_reason'] === 'concurrency_limit_reached'
