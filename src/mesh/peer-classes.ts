import type { Startable } from '../base/startable.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import type { PeerClass } from '../protocol/limits/mesh.ts'
import type { AddressBook } from './address-book.ts'
import type { MeshNode } from './node.ts'

interface PeerClassesDeps {
  readonly book: AddressBook
  readonly node: Pick<MeshNode, 'isPinned' | 'reviewHosts' | 'table'>
  readonly executor: Pick<ExecutorClient, 'identity' | 'snapshot' | 'onSnapshot'>
}

/** Determines the peer class of machines from contacts, ACL, bootstrap list and fetched cards. A machine that is in no list is unlisted. */
export class PeerClasses implements Startable {
  readonly #deps: PeerClassesDeps
  #peerClasses: ReadonlyMap<MachineId, PeerClass> = new Map()
  #pinned: ReadonlySet<MachineId> = new Set()
  #listedAgents: ReadonlySet<AgentId> = new Set()

  constructor(deps: PeerClassesDeps) {
    this.#deps = deps
  }

  start(): void {
    const { book, node, executor } = this.#deps
    node.isPinned = (machineId) => this.#pinned.has(machineId)
    node.table.addressesOf = (machineId) => book.addressesOf(machineId)
    executor.onSnapshot(() => this.#onSnapshot())
    this.#onSnapshot()
  }

  of(machineId: MachineId): PeerClass {
    return this.#peerClasses.get(machineId) ?? 'unlisted'
  }

  /** Whether the agent is the own one, a contact or in the ACL. */
  isNamed(agentId: AgentId): boolean {
    const { book, executor } = this.#deps
    return agentId === executor.identity.agentId || book.isContact(agentId) || this.#listedAgents.has(agentId)
  }

  /** Rebuilds all classes. A fetched card may place a contact without pins on another machine. Call it once after many changes, because it reads everything. */
  learn(): void {
    const { book, executor } = this.#deps
    const { named, accepted } = book.homes()
    const machines = [...executor.snapshot.known_pairs.map(([, machineId]) => machineId), ...book.bootstrapMachines, ...named]
    this.#peerClasses = new Map<MachineId, PeerClass>([
      ...machines.map((machineId) => [machineId, 'named'] as const),
      ...accepted.map((machineId) => [machineId, 'accepted'] as const),
    ])
  }

  #onSnapshot(): void {
    const { contacts, known_pairs } = this.#deps.executor.snapshot
    const pins = contacts.flatMap(({ trust, machines }) => (trust === 'blocked' ? [] : machines))
    this.#listedAgents = new Set(known_pairs.map(([agentId]) => agentId))
    this.#pinned = new Set([...known_pairs.map(([, machineId]) => machineId), ...pins])
    this.learn()
    this.#deps.node.reviewHosts(this.#deps.book.listedHosts)
  }
}
