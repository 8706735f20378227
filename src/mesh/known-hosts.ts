import { BoundedMap } from '../base/bounded.ts'
import type { MachineId } from '../protocol/ids.ts'

/** Named machines of which it is remembered where they were, so that their way in is not narrowed for what strangers did there, … */
export const MAX_REMEMBERED_MACHINES = 2_048
/** … and the latest hosts of each: at home, at work, on the way. Every one has a share of its own, and one machine may have a /48. */
export const MAX_HOSTS_PER_MACHINE = 4

/** Hosts where machines are that we know: whoever comes from there may be one of them. */
export class KnownHosts {
  /** Where each has proven itself, its latest host last; of machines the latest last. */
  readonly #hostsOf = new BoundedMap<MachineId, readonly string[]>({ max: MAX_REMEMBERED_MACHINES })
  /** All of these; null when they have changed. */
  #met: ReadonlySet<string> | null = null
  #listed: ReadonlySet<string> = new Set()

  has(host: string): boolean {
    this.#met ??= new Set([...this.#hostsOf.values()].flat())
    return this.#met.has(host) || this.#listed.has(host)
  }

  /** A machine that we know has proven itself there. */
  add(host: string, machineId: MachineId): void {
    const before = this.#hostsOf.get(machineId) ?? []
    this.#hostsOf.set(machineId, [...before.filter((one) => one !== host), host].slice(-MAX_HOSTS_PER_MACHINE))
    if (!before.includes(host)) this.#met = null
  }

  /** Forgets where machines were that are not known any more. `listed`: where cards and the bootstrap list say that machines are. */
  review(isKnown: (machineId: MachineId) => boolean, listed: ReadonlySet<string>): void {
    this.#listed = listed
    for (const machineId of this.#hostsOf.keys()) if (!isKnown(machineId)) this.#hostsOf.delete(machineId)
    this.#met = null
  }
}
