import { hasShare } from '../base/share.ts'
import type { AgentShares } from '../mesh/agent-shares.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshNode } from '../mesh/node.ts'

/** Handshakes at once, by standing, each with places of its own: strangers cannot use up those of named machines, nor these those of accepted contacts. */
export const HANDSHAKE_PLACES = { accepted: 64, named: 16, stranger: 32 } as const
/** … of strangers from one remote address, … */
export const MAX_STRANGER_HANDSHAKES_PER_ADDRESS = 4
/** … and of one machine: two that crossed. */
export const MAX_HANDSHAKES_PER_MACHINE = 2

export interface HandshakeNode extends Pick<MeshNode, 'standing' | 'mayBegin'> {
  readonly shares: Pick<AgentShares, 'agentOf'>
}

/**
 * Who may cost us a handshake now. Noise has already proven the machine, so nobody can pose as one we know: machines
 * of accepted contacts have places of their own, then those that are only named, and strangers have few, fewer still
 * from one address. Two at a time of one machine, one on each connection, and no source more often than its meter allows.
 * All machines that have proven one agent share: they leave as many places as they take.
 */
export class HandshakeBudget {
  readonly #node: HandshakeNode
  readonly #underway = new Set<MeshConnection>()

  constructor(components: { node: HandshakeNode }) {
    this.#node = components.node
  }

  /** Gives back the place when called, once; null when there is none. */
  take(connection: MeshConnection): (() => void) | null {
    if (!this.#hasPlace(connection) || !this.#node.mayBegin(connection, 'handshakes')) return null
    this.#underway.add(connection)
    return () => void this.#underway.delete(connection)
  }

  #hasPlace(connection: MeshConnection): boolean {
    const standing = this.#node.standing(connection.machineId)
    const alike = [...this.#underway].filter((other) => this.#node.standing(other.machineId) === standing)
    const holderOf = ({ machineId }: MeshConnection): string => this.#node.shares.agentOf(machineId) ?? machineId
    const own = alike.filter((other) => holderOf(other) === holderOf(connection))
    const machines = alike.filter((other) => other.machineId === connection.machineId)
    const here = standing === 'stranger' ? alike.filter((other) => other.host === connection.host) : []
    return (
      !this.#underway.has(connection) &&
      hasShare(own.length, alike.length, HANDSHAKE_PLACES[standing]) &&
      machines.length < MAX_HANDSHAKES_PER_MACHINE &&
      here.length < MAX_STRANGER_HANDSHAKES_PER_ADDRESS
    )
  }
}
