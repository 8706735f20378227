import type { MachineId } from '../protocol/ids.ts'
import { MAX_MACHINES_PER_REMEMBERED_HOST, MAX_REMEMBERED_HOSTS } from '../protocol/meter-limits.ts'

/** Hosts where machines are that we know: whoever comes from there may be one of them. */
export class KnownHosts {
  /** Who has proven itself there; the latest host last. */
  readonly #met = new Map<string, Set<MachineId>>()
  #listed: ReadonlySet<string> = new Set()

  has(host: string): boolean {
    return this.#met.has(host) || this.#listed.has(host)
  }

  /** A machine that we know has proven itself there. */
  add(host: string, machineId: MachineId): void {
    const machines = this.#met.get(host) ?? new Set()
    if (machines.size < MAX_MACHINES_PER_REMEMBERED_HOST) machines.add(machineId)
    this.#met.delete(host)
    this.#met.set(host, machines)
    if (this.#met.size > MAX_REMEMBERED_HOSTS) this.#met.delete(this.#met.keys().next().value!)
  }

  /** Forgets hosts where nobody was that is still known. `listed`: where cards and the bootstrap list say that machines are. */
  review(isKnown: (machineId: MachineId) => boolean, listed: ReadonlySet<string>): void {
    this.#listed = listed
    for (const [host, machines] of this.#met) {
      for (const machineId of machines) if (!isKnown(machineId)) machines.delete(machineId)
      if (machines.size === 0) this.#met.delete(host)
    }
  }
}
