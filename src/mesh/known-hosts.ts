import { BoundedMap } from '../base/bounded.ts'
import type { MachineId } from '../protocol/ids.ts'

/** Machines that neither a pin nor the ACL names whose hosts are remembered, so that what strangers did at those hosts does not keep the machines out; of more, the host with most loses its oldest … */
export const MAX_REMEMBERED_MACHINES = 2_048
/** … and how many hosts of each, the latest: home, work, a phone's network. Few, because each gets a share of its own (`Sources.mayConnect`) and one machine may hold a /48. */
export const MAX_HOSTS_PER_MACHINE = 4

/** Hosts at which machines that we know have proven themselves, or are listed. A connection from one of these may be such a machine's. */
export class KnownHosts {
  /** Hosts at which each machine has proven itself; the latest machine and its latest host last. */
  readonly #hostsOf: BoundedMap<MachineId, readonly string[]>
  /** All hosts of `#hostsOf`; null when those have changed since. */
  #met: ReadonlySet<string> | null = null
  #listed: ReadonlySet<string> = new Set()

  constructor(components: { isListed: (machineId: MachineId) => boolean }) {
    this.#hostsOf = new BoundedMap({ max: MAX_REMEMBERED_MACHINES, isApart: components.isListed })
  }

  has(host: string): boolean {
    this.#met ??= new Set([...this.#hostsOf.values()].flat())
    return this.#met.has(host) || this.#listed.has(host)
  }

  /** A machine that we know has proven itself at this host. */
  add(host: string, machineId: MachineId): void {
    const before = this.#hostsOf.get(machineId) ?? []
    this.#hostsOf.set(machineId, [...before.filter((one) => one !== host), host].slice(-MAX_HOSTS_PER_MACHINE), host)
    if (!before.includes(host)) this.#met = null
  }

  /** Forgets machines that are not known any more. `listed`: see `AddressBook.listedHosts`. */
  review(isKnown: (machineId: MachineId) => boolean, listed: ReadonlySet<string>): void {
    this.#listed = listed
    for (const machineId of this.#hostsOf.keys()) if (!isKnown(machineId)) this.#hostsOf.delete(machineId)
    this.#met = null
  }
}
