import { AppError } from '../base/errors.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_CONNECTIONS_PER_AGENT, MAX_MACHINES_PER_AGENT } from '../protocol/limits/mesh.ts'
import type { MeshConnection, OpenConnections } from './connection.ts'

interface AgentSharesDeps {
  readonly connections: Pick<OpenConnections, 'onDisconnected' | 'to'>
}

/**
 * Bounds the machines and connections of each accepted agent, because an agent can make as many machine keys as it likes. A machine counts
 * for every agent that it has proven, and until its last connection ends. Otherwise an agent could end its link, keep the connections and
 * bring the next machine.
 */
export class AgentShares {
  readonly #connections: AgentSharesDeps['connections']
  /** Agents that each connected machine has proven. The machines are in the order of their first proof. */
  readonly #agents = new Map<MachineId, Set<AgentId>>()
  #closed = 0

  constructor(deps: AgentSharesDeps) {
    this.#connections = deps.connections
    deps.connections.onDisconnected(({ machineId }) => {
      if (deps.connections.to(machineId).length === 0) this.#agents.delete(machineId)
    })
  }

  /** Number of connections that were closed because their agent had more than its share. */
  get closed(): number {
    return this.#closed
  }

  /** The agent that a connected machine proved first, or null if it proved no accepted agent. */
  agentOf(machineId: MachineId): AgentId | null {
    return this.#agents.get(machineId)?.values().next().value ?? null
  }

  /** Records that the machine of this connection has proven an accepted agent. */
  onProven(connection: MeshConnection, agentId: AgentId): void {
    const { machineId } = connection
    this.#agents.set(machineId, (this.#agents.get(machineId) ?? new Set()).add(agentId))
    this.#enforce(agentId, connection)
  }

  onConnected(connection: MeshConnection): void {
    for (const agentId of this.#agents.get(connection.machineId) ?? []) this.#enforce(agentId, connection)
  }

  /** Above a limit, closes the oldest idle machine or connection, or else the oldest. It never closes `newest`. */
  #enforce(agentId: AgentId, newest: MeshConnection): void {
    const machines = [...this.#agents].flatMap(([machineId, agents]) => (agents.has(agentId) ? [this.#connections.to(machineId)] : []))
    const others = machines.filter((connections) => connections.every((one) => one.machineId !== newest.machineId))
    if (machines.length > MAX_MACHINES_PER_AGENT)
      this.#close(others.find((connections) => connections.every(({ idle }) => idle)) ?? others[0]!)
    const open = machines.flat().filter((one) => one !== newest && one.open)
    const oldestFirst = open.toSorted((a, b) => Number(b.idle) - Number(a.idle) || a.openedAtMs - b.openedAtMs)
    this.#close(oldestFirst.slice(0, Math.max(0, open.length + 1 - MAX_CONNECTIONS_PER_AGENT)))
  }

  #close(connections: readonly MeshConnection[]): void {
    this.#closed += connections.length
    for (const connection of connections) connection.abort(new AppError('rate_limited', 'its agent has too many connections'))
  }
}
