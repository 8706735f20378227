import type { Clock } from '../base/clock.ts'
import { RateLimit } from '../base/rate-limit.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_STRANGER_CONNECTIONS } from '../protocol/limits.ts'
import { perMinute } from '../protocol/meter-limits.ts'
import type { MeshNode } from './node.ts'

/** Strangers found by mDNS that are dialled per minute, since any host of the local network may announce any number of machines … */
export const FOUND_STRANGERS_PER_MINUTE = 32
/** … that are dialled at once, which leaves the other `MAX_BACKGROUND_DIALS` to named machines … */
export const MAX_STRANGER_DIALS = 2
/** … and that wait for their turn; mDNS finds those beyond it again within a minute or so. */
export const MAX_FOUND_WAITING = 64

export interface FoundMachinesComponents {
  readonly node: Pick<MeshNode, 'isKnown' | 'strangerConnections' | 'strangersMayCome'>
  readonly clock: Pick<Clock, 'monotonic'>
}

/** A machine to be tried once, at addresses that anybody may have made up. */
export interface FoundMachine {
  readonly machineId: MachineId
  readonly addresses: readonly string[]
}

/** All strangers are one source. */
const STRANGERS = ''

/**
 * Machines that mDNS found and for which no caller waits. Each is dialled once: known machines first, strangers
 * `MAX_STRANGER_DIALS` at a time and `FOUND_STRANGERS_PER_MINUTE`, because any host of the local network may announce any
 * number of machines and addresses.
 */
export class FoundMachines {
  readonly #node: Pick<MeshNode, 'isKnown' | 'strangerConnections' | 'strangersMayCome'>
  readonly #admitted: RateLimit
  readonly #waiting = new Map<MachineId, FoundMachine>()
  readonly #strangers = new Set<MachineId>()

  constructor(components: FoundMachinesComponents) {
    this.#node = components.node
    this.#admitted = new RateLimit(components, perMinute(FOUND_STRANGERS_PER_MINUTE))
  }

  /** Takes it in, unless it is one stranger too many. */
  add(found: FoundMachine): void {
    const { machineId } = found
    const welcome = this.#waiting.has(machineId) || this.#node.isKnown(machineId)
    if (welcome || this.#mayWait()) this.#waiting.set(machineId, found)
  }

  /** The machine to dial now; null when there is none. Each is handed out once, and `done` is called for it. */
  next(): FoundMachine | null {
    const known = [...this.#waiting.keys()].find((machineId) => this.#node.isKnown(machineId))
    const machineId = known ?? this.#firstStranger()
    const found = machineId === undefined ? undefined : this.#waiting.get(machineId)
    if (found === undefined) return null
    this.#waiting.delete(found.machineId)
    if (known === undefined) this.#strangers.add(found.machineId)
    return found
  }

  done(machineId: MachineId): void {
    this.#strangers.delete(machineId)
  }

  #mayWait(): boolean {
    return this.#node.strangersMayCome && this.#waiting.size < MAX_FOUND_WAITING && this.#admitted.allows(STRANGERS)
  }

  #firstStranger(): MachineId | undefined {
    // Asked at each connection that comes and ends: all connections are gone through only while a stranger waits.
    const room =
      this.#waiting.size > 0 && this.#strangers.size < MAX_STRANGER_DIALS && this.#node.strangerConnections() < MAX_STRANGER_CONNECTIONS
    return room ? this.#waiting.keys().next().value : undefined
  }
}
