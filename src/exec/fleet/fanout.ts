import { NEVER } from '../../base/abort.ts'
import type { Clock } from '../../base/clock.ts'
import { Semaphore } from '../../base/semaphore.ts'
import { type FanoutHostJson, type FanoutLedgerJson, FanoutSums, type NotStartedReason, isSuccess } from '../../protocol/api/fanout.ts'
import { type FanoutHost, hostNotStarted, hostStopped } from './host-end.ts'

export interface HostRun {
  /** Resolves with the result and never rejects. */
  readonly ended: Promise<FanoutHostJson>
  /** Cancels the run. Its result is still reported. */
  cancel(): void
}

/** Limits the runs of one fan-out among all fan-outs. */
export interface FanoutSlotSource {
  /** Takes a slot and returns the function that releases it. Throws the signal's reason, without a slot. */
  acquire(signal: AbortSignal): Promise<() => void>
}

export interface FanoutComponents {
  readonly clock: Pick<Clock, 'setTimeout'>
  readonly slots: FanoutSlotSource
  start(host: FanoutHost): HostRun
  /** Called once per host. The slot of the host stays taken until the promise resolves. */
  ended(host: FanoutHostJson): void | Promise<void>
}

export interface FanoutPlan {
  readonly fanout_id: string
  /** Each agent once. */
  readonly hosts: readonly FanoutHost[]
  /** Number of hosts at once. */
  readonly parallel: number
  /** The first n hosts must all succeed before the others start. */
  readonly canary: number
  /** Number of failures after which no more hosts start, or null for no limit. */
  readonly maxFailures: number | null
  /** Time limit of the fan-out in milliseconds, or null. */
  readonly deadlineMs: number | null
}

/** Starts the hosts in order, a window of them at once. Each host ends once. */
export class Fanout {
  readonly #components: FanoutComponents
  readonly #plan: FanoutPlan
  readonly #sums = new FanoutSums()
  readonly #running = new Set<HostRun>()
  readonly #closing = new AbortController()
  /** Why no more hosts start, or null while they do. */
  #why: NotStartedReason | null = null
  /** Why running hosts are cancelled, or null if they are not. */
  #stoppedBy: NotStartedReason | null = null
  #started = 0
  #inCanary = false
  readonly #stop = new AbortController()
  /** Aborts when running hosts are cancelled. */
  readonly stopped = this.#stop.signal

  constructor(components: FanoutComponents, plan: FanoutPlan) {
    this.#components = components
    this.#plan = plan
  }

  /** Totals of the ended hosts. */
  get sums(): Omit<FanoutSums, 'add'> {
    return this.#sums
  }

  /** Number of hosts that have started, and that have ended. */
  get progress(): { readonly begun: number; readonly ended: number } {
    return { begun: this.#started, ended: this.#sums.ended }
  }

  /** Runs the fan-out, once. Resolves when every host has ended and was reported. */
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

  /** Starts no more hosts, and cancels the running ones. */
  stop(reason: NotStartedReason): void {
    this.#close(reason)
    this.#stoppedBy ??= reason
    this.#stop.abort()
    for (const run of this.#running) run.cancel()
  }

  /** Starts no more hosts. The first reason counts. */
  #close(reason: NotStartedReason): void {
    this.#why ??= reason
    this.#closing.abort()
  }

  /** Resolves when all of these hosts that started have ended. */
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

  /** Takes a slot of this window and one of all fan-outs. Returns null if no more hosts start. */
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
