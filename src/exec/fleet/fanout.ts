import { NEVER } from '../../base/abort.ts'
import type { Clock } from '../../base/clock.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { type FanoutHostJson, type FanoutLedgerJson, FanoutSums, type NotStartedReason, isSuccess } from '../../protocol/api/fanout.ts'
import { type FanoutHost, hostNotStarted, hostStopped } from './host-end.ts'

/** One host's run. */
export interface HostRun {
  /** How it ended; never rejects. */
  readonly ended: Promise<FanoutHostJson>
  /** Its end is still told, as whatever it was. */
  cancel(): void
}

/** Where a run waits for its place among those of others. */
export interface FanoutSlotSource {
  /** Answers how to give it back. Throws the signal's reason, and holds none then. */
  acquire(signal: AbortSignal): Promise<() => void>
}

export interface FanoutComponents {
  readonly clock: Pick<Clock, 'setTimeout'>
  /** Among the runs of all fan-outs. */
  readonly slots: FanoutSlotSource
  start(host: FanoutHost): HostRun
  /** Once for each host. A promise is backpressure: until it resolves the host's place is taken. */
  ended(host: FanoutHostJson): void | Promise<void>
}

export interface FanoutPlan {
  readonly fanout_id: string
  /** Each agent once. */
  readonly hosts: readonly FanoutHost[]
  /** Hosts at once. */
  readonly parallel: number
  /** So many of the first must all succeed before the others begin. */
  readonly canary: number
  /** With so many that did not succeed, nothing more begins; null: however many. */
  readonly maxFailures: number | null
  /** For all of them, in milliseconds; null: however long. */
  readonly deadlineMs: number | null
}

/** Begins hosts in their order, a window of them at once, until all had their turn or nothing more is to begin; each ends once. */
export class Fanout {
  readonly #components: FanoutComponents
  readonly #plan: FanoutPlan
  readonly #sums = new FanoutSums()
  readonly #running = new Set<HostRun>()
  readonly #closing = new AbortController()
  /** Why nothing more begins; null: more does. */
  #why: NotStartedReason | null = null
  /** Why what runs is cancelled; null: it is not. */
  #stoppedBy: NotStartedReason | null = null
  #started = 0
  #inCanary = false
  readonly #stop = new AbortController()
  /** Aborts when what runs is cancelled. */
  readonly stopped = this.#stop.signal

  constructor(components: FanoutComponents, plan: FanoutPlan) {
    this.#components = components
    this.#plan = plan
  }

  /** Of the hosts that have ended. */
  get sums(): Omit<FanoutSums, 'add'> {
    return this.#sums
  }

  /** Hosts that had their turn, and those of which is known how they ended. */
  get progress(): { readonly begun: number; readonly ended: number } {
    return { begun: this.#started, ended: this.#sums.ended }
  }

  /** Once. Resolves when every host has ended and was told of. */
  async run(): Promise<FanoutLedgerJson> {
    const { canary, deadlineMs, fanout_id, hosts } = this.#plan
    const timer = deadlineMs === null ? null : this.#components.clock.setTimeout(() => this.stop('deadline_over'), deadlineMs)
    try {
      this.#inCanary = canary > 0
      await this.#window(hosts.slice(0, canary))
      this.#inCanary = false
      await this.#window(hosts.slice(canary))
    } finally {
      timer?.cancel()
    }
    for (const host of hosts.slice(this.#started)) await this.#emit(hostNotStarted(host, this.#why!))
    return this.#sums.ledger(fanout_id, hosts.length)
  }

  /** Begins nothing more, and cancels what runs. */
  stop(reason: NotStartedReason): void {
    this.#close(reason)
    this.#stoppedBy ??= reason
    this.#stop.abort()
    for (const run of this.#running) run.cancel()
  }

  /** The first reason holds. */
  #close(reason: NotStartedReason): void {
    this.#why ??= reason
    this.#closing.abort()
  }

  /** Resolves when all of these that began have ended. */
  async #window(hosts: readonly FanoutHost[]): Promise<void> {
    const { parallel } = this.#plan
    const places = new Semaphore({ limit: parallel })
    for (const host of hosts) {
      const leave = await this.#enter(places)
      if (leave === null) break
      this.#started += 1
      void this.#follow(this.#components.start(host)).finally(leave)
    }
    const leave = await places.acquire(NEVER, parallel)
    leave()
  }

  /** A place here and one among all fan-outs; null: nothing more begins. */
  async #enter(places: Semaphore): Promise<(() => void) | null> {
    const { signal } = this.#closing
    if (signal.aborted) return null
    const here = await places.acquire(signal).catch(() => null)
    const among = here === null ? null : await this.#components.slots.acquire(signal).catch(() => null)
    if (here !== null && among !== null && !signal.aborted)
      return () => {
        among()
        here()
      }
    among?.()
    here?.()
    return null
  }

  async #follow(run: HostRun): Promise<void> {
    this.#running.add(run)
    if (this.stopped.aborted) run.cancel()
    const host = await run.ended
    this.#running.delete(run)
    await this.#emit(hostStopped(host, this.#stoppedBy))
  }

  async #emit(host: FanoutHostJson): Promise<void> {
    this.#sums.add(host)
    const { maxFailures } = this.#plan
    if (this.#inCanary && !isSuccess(host)) this.#close('canary_failed')
    if (maxFailures !== null && this.#sums.unsuccessful >= maxFailures) this.#close('max_failures_reached')
    await this.#components.ended(host)
  }
}
