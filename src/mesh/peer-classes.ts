import type { Startable } from '../base/startable.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import type { PeerClass } from '../protocol/limits/mesh.ts'
import type { AddressBook } from './address-book.ts'
import type { MeshNode } from './node.ts'

interface PeerClassesDeps {
  readonly book: AddressBook
  readonly node: Pick<MeshNode, 'isListed' | 'reviewHosts' | 'table'>
  readonly port: Pick<ExecutorClient, 'identity' | 'snapshot' | 'onSnapshot'>
}

/** Determines the peer class of machines from contacts, ACL, bootstrap list and fetched cards. A machine in none of them is unlisted. */
export class PeerClasses implements Startable {
  readonly #deps: PeerClassesDeps
  #peerClasses: ReadonlyMap<MachineId, PeerClass> = new Map()
  #listed: ReadonlySet<MachineId> = new Set()
  #listedAgents: ReadonlySet<AgentId> = new Set()

  constructor(deps: PeerClassesDeps) {
    this.#deps = deps
  }

  start(): void {
    const { book, node, port } = this.#deps
    node.isListed = (machineId) => this.#listed.has(machineId)
    node.table.addressesOf = (machineId) => book.addressesOf(machineId)
    port.onSnapshot(() => this.#onSnapshot())
    this.#onSnapshot()
  }

  of(machineId: MachineId): PeerClass {
    return this.#peerClasses.get(machineId) ?? 'stranger'
  }

  /** Whether the agent is the own one, a contact or in the ACL. */
  isNamed(agentId: AgentId): boolean {
    const { book, port } = this.#deps
    return agentId === port.identity.agentId || book.isContact(agentId) || this.#listedAgents.has(agentId)
  }

  /** Rebuilds all classes. A fetched card may place a contact without pins on another machine. Call it once after many changes, because it reads everything. */
  learn(): void {
    const { book, port } = this.#deps
    const { named, accepted } = book.homes()
    const machines = [...port.snapshot.known_pairs.map(([, machineId]) => machineId), ...book.bootstrapMachines, ...named]
    this.#peerClasses = new Map<MachineId, PeerClass>([
      ...machines.map((machineId) => [machineId, 'named'] as const),
      ...accepted.map((machineId) => [machineId, 'accepted'] as const),
    ])
  }

  #onSnapshot(): void {
    const { contacts, known_pairs } = this.#deps.port.snapshot
    const pins = contacts.flatMap(({ trust, machines }) => (trust === 'blocked' ? [] : machines))
    this.#listedAgents = new Set(known_pairs.map(([agentId]) => agentId))
    this.#listed = new Set([...known_pairs.map(([, machineId]) => machineId), ...pins])
    this.learn()
    this.#deps.node.reviewHosts(this.#deps.book.listedHosts)
  }
}
