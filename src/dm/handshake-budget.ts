import type { MeshConnection } from '../mesh/connection.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_KNOWN_HANDSHAKES, MAX_STRANGER_HANDSHAKES, MAX_STRANGER_HANDSHAKES_PER_ADDRESS } from '../protocol/limits.ts'

/**
 * Who may cost us a handshake now. Noise has already proven the machine, so nobody can pose as one we
 * know: machines that the contacts or the ACL name have places of their own, which strangers cannot
 * take, and strangers have few, fewer still from one address. One at a time on each connection.
 */
export class HandshakeBudget {
  readonly #isKnown: (machineId: MachineId) => boolean
  readonly #connections = new Set<MeshConnection>()
  readonly #strangersByHost = new Map<string, number>()
  #strangers = 0
  #known = 0

  constructor(components: { isKnown: (machineId: MachineId) => boolean }) {
    this.#isKnown = components.isKnown
  }

  /** Gives back the place when called, once; null when there is none. */
  take(connection: MeshConnection): (() => void) | null {
    if (this.#connections.has(connection)) return null
    const release = this.#isKnown(connection.machineId) ? this.#takeKnown() : this.#takeStranger(connection.host)
    if (release === null) return null
    this.#connections.add(connection)
    return () => {
      if (this.#connections.delete(connection)) release()
    }
  }

  #takeKnown(): (() => void) | null {
    if (this.#known >= MAX_KNOWN_HANDSHAKES) return null
    this.#known += 1
    return () => void (this.#known -= 1)
  }

  #takeStranger(host: string): (() => void) | null {
    const here = this.#strangersByHost.get(host) ?? 0
    if (this.#strangers >= MAX_STRANGER_HANDSHAKES || here >= MAX_STRANGER_HANDSHAKES_PER_ADDRESS) return null
    this.#strangers += 1
    this.#strangersByHost.set(host, here + 1)
    return () => {
      this.#strangers -= 1
      const left = (this.#strangersByHost.get(host) ?? 1) - 1
      if (left === 0) this.#strangersByHost.delete(host)
      else this.#strangersByHost.set(host, left)
    }
  }
}
