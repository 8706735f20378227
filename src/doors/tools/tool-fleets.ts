import { randomBytes } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { Turnstile } from '../../base/turnstile.ts'
import type { MeantTarget } from '../../executor-api/local-executor.ts'
import { failuresAllowed } from '../../protocol/fanout.ts'
import { MAX_FLEETS_ENDED, MAX_FLEETS_GOING, MAX_FLEET_HOSTS, MAX_FLEET_PARALLEL } from '../../protocol/fleet-tool-limits.ts'
import { type FleetRequest, ToolFleet, fleetHash } from './tool-fleet.ts'
import type { ToolRuns } from './tool-runs.ts'

export interface ToolFleetsComponents {
  readonly runs: ToolRuns
  readonly clock: Clock
}

const otherCommand = (): AppError =>
  new AppError('conflict', 'idempotency_key: it was given with another command; take a new one for a new command')

/** The commands for many hosts that one caller of the tools has under way, or had. */
export class ToolFleets {
  readonly #components: ToolFleetsComponents
  /** Places of hosts of all fleets: each has a session. Null before the first, which says how many there are. */
  #slots: Turnstile | null = null
  /** Of this server's life, as of its runs. */
  readonly #prefix = `fleet_${randomBytes(4).toString('hex')}_`
  /** The oldest first. */
  readonly #fleets = new Map<string, ToolFleet>()
  readonly #byKey = new Map<string, ToolFleet>()
  #count = 0
  #closed = false

  constructor(components: ToolFleetsComponents) {
    this.#components = components
  }

  /** Throws `unknown_run`. */
  get(id: string): ToolFleet {
    const fleet = this.#fleets.get(id)
    if (fleet === undefined)
      throw new AppError('unknown_run', `fleet_id: no command for many hosts has the id ${JSON.stringify(id.slice(0, 80))}`)
    return fleet
  }

  /** What was begun with this key; null: nothing that is still known. Throws `conflict` where it was another command. */
  withKey(key: string | null, request: FleetRequest): ToolFleet | null {
    const known = key === null ? undefined : this.#byKey.get(key)
    if (known !== undefined && fleetHash(known.request) !== fleetHash(request)) throw otherCommand()
    return known ?? null
  }

  /** Begins it, hosts in their order. `places`: of hosts of all fleets at once, as many as may have a session; the same in each call. Throws `bad_request`, `rate_limited`. */
  begin(request: FleetRequest, hosts: readonly MeantTarget[], { key, places }: { key: string | null; places: number }): ToolFleet {
    const { parallel, canary, maxFailures, deadlineMs } = request.plan
    if (hosts.length > MAX_FLEET_HOSTS)
      throw new AppError('bad_request', `hosts: these words mean ${hosts.length} hosts, and one call asks at most ${MAX_FLEET_HOSTS}`)
    if (this.#closed) throw new AppError('shutting_down')
    const going = [...this.#fleets.values()].filter(({ over }) => !over).length
    if (going >= MAX_FLEETS_GOING)
      throw new AppError('rate_limited', `${going} commands for many hosts go on, and no more may: let one of them end first`)
    const atOnce = Math.max(1, Math.min(MAX_FLEET_PARALLEL, places))
    this.#slots ??= new Turnstile({ limit: atOnce })
    const plan = {
      fanout_id: `${this.#prefix}${++this.#count}`,
      hosts: hosts.map(({ host, agent_id }) => ({ host, agent_id })),
      parallel: Math.min(parallel, atOnce),
      canary,
      maxFailures: maxFailures === null ? null : failuresAllowed(maxFailures, hosts.length),
      deadlineMs,
    }
    const fleet = new ToolFleet({ ...this.#components, slots: this.#slots }, { id: plan.fanout_id, request, hosts, plan, key })
    this.#fleets.set(fleet.id, fleet)
    if (key !== null) this.#byKey.set(key, fleet)
    this.#forgetOld()
    return fleet
  }

  /** Begins nothing more, and ends what runs. */
  close(): void {
    this.#closed = true
    for (const fleet of this.#fleets.values()) if (!fleet.over) fleet.cancel('shutting_down')
  }

  #forgetOld(): void {
    const ended = [...this.#fleets.values()].filter(({ over }) => over)
    for (const fleet of ended.slice(0, Math.max(ended.length - MAX_FLEETS_ENDED, 0))) {
      this.#fleets.delete(fleet.id)
      for (const [key, one] of this.#byKey) if (one === fleet) this.#byKey.delete(key)
    }
  }
}
