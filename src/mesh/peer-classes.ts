import type { Startable } from '../base/startable.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import type { PeerClass } from '../protocol/limits/mesh.ts'
import type { AddressBook } from './address-book.ts'
import type { MeshNode } from './node.ts'

export interface PeerClassesComponents {
  readonly book: AddressBook
  readonly node: Pick<MeshNode, 'isListed' | 'reviewHosts' | 'table'>
  readonly port: Pick<ExecutorClient, 'identity' | 'snapshot' | 'onSnapshot'>
}

/** What the contacts, the ACL, the bootstrap list and fetched cards say of machines. Whoever is in none of them is a stranger. */
export class PeerClasses implements Startable {
  readonly #parts: PeerClassesComponents
  #standings: ReadonlyMap<MachineId, PeerClass> = new Map()
  #listed: ReadonlySet<MachineId> = new Set()
  #listedAgents: ReadonlySet<AgentId> = new Set()

  constructor(components: PeerClassesComponents) {
    this.#parts = components
  }

  start(): void {
    const { book, node, port } = this.#parts
    node.isListed = (machineId) => this.#listed.has(machineId)
    node.table.addressesOf = (machineId) => book.addressesOf(machineId)
    port.onSnapshot(() => this.#onSnapshot())
    this.#onSnapshot()
  }

  of(machineId: MachineId): PeerClass {
    return this.#standings.get(machineId) ?? 'stranger'
  }

  /** Whether a contact or the ACL names this agent, or it is ours. */
  isNamed(agentId: AgentId): boolean {
    const { book, port } = this.#parts
    return agentId === port.identity.agentId || book.isContact(agentId) || this.#listedAgents.has(agentId)
  }

  /** A card was fetched: a contact without pins may be on another machine. One look at all, so once for many. */
  learn(): void {
    const { book, port } = this.#parts
    const { named, accepted } = book.homes()
    const machines = [...port.snapshot.known_pairs.map(([, machineId]) => machineId), ...book.bootstrapMachines, ...named]
    this.#standings = new Map<MachineId, PeerClass>([
      ...machines.map((machineId) => [machineId, 'named'] as const),
      ...accepted.map((machineId) => [machineId, 'accepted'] as const),
    ])
  }

  #onSnapshot(): void {
    const { contacts, known_pairs } = this.#parts.port.snapshot
    const pins = contacts.flatMap(({ trust, machines }) => (trust === 'blocked' ? [] : machines))
    this.#listedAgents = new Set(known_pairs.map(([agentId]) => agentId))
    this.#listed = new Set([...known_pairs.map(([, machineId]) => machineId), ...pins])
    this.learn()
    this.#parts.node.reviewHosts(this.#parts.book.listedHosts)
  }
}
