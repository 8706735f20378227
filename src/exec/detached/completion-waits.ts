import type { Clock } from '../../base/clock.ts'
import { isAppError } from '../../base/errors.ts'
import { Semaphore } from '../../base/semaphore.ts'
import type { MachineId } from '../../protocol/ids.ts'
import { MAX_ATTACHED_PER_AGENT } from '../../protocol/limits/detached.ts'
import { pause } from './request-once.ts'

/** Of the places that a host has for whoever is attached, those who wait for ends take half: the others are for who reads. */
const MAX_ATTACHED_WAITS = MAX_ATTACHED_PER_AGENT / 2
/** Those who fetch an end that is there are attached for a moment. */
const MAX_FETCHING = 4
/** How soon one that has no place asks again: each after this, and all of one host together at a quarter of the rate that it answers. */
const ASK_AGAIN_MS = 2_000
const ASKS_APART_MS = 250

interface Host {
  readonly fetching: Semaphore
  attached: number
  asking: number
  fetches: number
}

/** Who waits here for the ends of runs, by their hosts: some are attached, and hear the end at once; the others ask now and then. */
export class CompletionWaits {
  readonly #clock: Clock
  readonly #hosts = new Map<MachineId, Host>()

  constructor(components: { readonly clock: Clock }) {
    this.#clock = components.clock
  }

  /** Answers how to leave the place; null: there is none. */
  enter(machineId: MachineId): (() => void) | null {
    if (this.#at(machineId).attached >= MAX_ATTACHED_WAITS) return null
    return this.#count(machineId, 'attached')
  }

  /** Does what fetches an end. Throws the signal's reason, and what that throws. */
  async fetch<T>(machineId: MachineId, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
    const leave = this.#count(machineId, 'fetches')
    try {
      return await this.#at(machineId).fetching.use(signal, work)
    } finally {
      leave()
    }
  }

  /** Until it may be asked again how one is. Throws the signal's reason. */
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

/** As many are attached there as may be: also others of this agent, or of others. */
export const isFullThere = (error: unknown): boolean =>
  isAppError(error, 'conflict') && error.data['denial_reason'] === 'concurrency_limit_reached'
