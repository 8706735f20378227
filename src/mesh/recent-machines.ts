import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { AppError } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_STANDING_CONNECTIONS } from '../protocol/limits/wire.ts'
import type { MeshConnection } from './connection.ts'
import type { MeshNode } from './node.ts'
import type { Reachability } from './reachability.ts'

/** A connection of use within this time is of use still: it stays, and is made again when it is lost. */
export const RECENT_MS = 600_000
/** Machines whose lost connection is made again for that reason alone; of more, the host with most loses its oldest. A run that goes on dials by itself. */
export const MAX_RECENT_MACHINES = 32
/** How often connections of no use are looked for. */
export const UNUSED_SWEEP_MS = 60_000

export interface RecentMachinesComponents {
  /** A relay of ours is of use as long as it is one. */
  readonly node: Pick<MeshNode, 'connections' | 'isKnown'> & { readonly reach?: Pick<Reachability, 'isRelay'> }
  readonly clock: Pick<Clock, 'monotonic'>
}

/** Machines beyond the standing ones that this node has had to do with lately: their connections stay, and go when they are of no use any more. */
export class RecentMachines {
  readonly #parts: RecentMachinesComponents
  /** Monotonic milliseconds until which each is wanted. */
  readonly #until = new BoundedMap<MachineId, number>({ max: MAX_RECENT_MACHINES })

  constructor(components: RecentMachinesComponents) {
    this.#parts = components
  }

  /** Those whose connection was lost while it was of use. */
  list(): MachineId[] {
    const now = this.#parts.clock.monotonic()
    for (const [machineId, until] of this.#until) if (until <= now) this.#until.delete(machineId)
    return [...this.#until.keys()]
  }

  /** A connection was lost. True when it is worth another. */
  lost(connection: MeshConnection): boolean {
    const { machineId } = connection
    // What we gave up ourselves is not missed.
    if (connection.givenUp || !this.#parts.node.isKnown(machineId) || !this.#isOfUse(connection)) return false
    this.#until.set(machineId, this.#parts.clock.monotonic() + RECENT_MS, connection.host)
    return true
  }

  /** Ends connections that we made and nobody used for `RECENT_MS`, where there are more than stand anyway; whoever wants one at the other end has dialled it. */
  endUnused(wanted: ReadonlySet<MachineId>): void {
    const open = this.#parts.node.connections()
    if (open.length <= MAX_STANDING_CONNECTIONS) return
    for (const connection of open) {
      const { inbound, machineId } = connection
      if (inbound || wanted.has(machineId) || !this.#parts.node.isKnown(machineId)) continue
      if (!this.#isOfUse(connection)) connection.abort(new AppError('peer_unreachable', 'nobody used the connection any more'))
    }
  }

  #isOfUse(connection: MeshConnection): boolean {
    return !connection.unusedFor(RECENT_MS) || this.#parts.node.reach?.isRelay(connection.machineId) === true
  }
}
