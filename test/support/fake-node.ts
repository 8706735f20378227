import { AppError } from '../../src/base/errors.ts'
import type { MeshConnection } from '../../src/mesh/connection.ts'
import type { MachineId } from '../../src/protocol/ids.ts'

interface Dial {
  readonly machineId: MachineId
  readonly addresses: readonly string[]
  readonly outcome: PromiseWithResolvers<MeshConnection>
}

/** A mesh node whose dials wait until the test ends them. It simulates floods that no real network could hold back. */
export class FakeNode {
  readonly known = new Set<MachineId>()
  /** Pending dials, oldest first. */
  readonly dials: Dial[] = []
  /** Every machine that was ever dialled. */
  readonly dialled: MachineId[] = []
  /** Machines whose connections this node aborted. */
  readonly aborted: MachineId[] = []
  readonly reach = { isRelay: (): boolean => false }
  strangers = 0
  acceptsUnlisted = true
  #connected = new Map<MachineId, MeshConnection>()
  #lose: (connection: MeshConnection) => void = () => undefined
  #find: (machineId: MachineId, addresses: string[]) => void = () => undefined

  isKnown = (machineId: MachineId): boolean => this.known.has(machineId)

  unlistedConnections(): number {
    return this.strangers
  }

  connections(): MeshConnection[] {
    return [...this.#connected.values()]
  }

  connectionsTo(machineId: MachineId): MeshConnection[] {
    const connection = this.#connected.get(machineId)
    return connection === undefined ? [] : [connection]
  }

  onDisconnected(listener: (connection: MeshConnection) => void): void {
    this.#lose = listener
  }

  onFound(listener: (machineId: MachineId, addresses: string[]) => void): void {
    this.#find = listener
  }

  async dial(machineId: MachineId, addresses: readonly string[], signal: AbortSignal): Promise<MeshConnection> {
    const dial: Dial = { machineId, addresses, outcome: Promise.withResolvers() }
    this.dials.push(dial)
    this.dialled.push(machineId)
    signal.addEventListener('abort', () => dial.outcome.reject(new AppError('shutting_down')))
    try {
      return await dial.outcome.promise
    } finally {
      this.dials.splice(this.dials.indexOf(dial), 1)
    }
  }

  /** Simulates a discovery by mDNS. */
  find(machineId: MachineId, ...addresses: string[]): void {
    this.#find(machineId, addresses)
  }

  connect(machineId: MachineId, openedAtMs = 0, { unused = true, inbound = false } = {}): void {
    const abort = (): void => {
      this.#connected.delete(machineId)
      this.aborted.push(machineId)
    }
    const state = { machineId, openedAtMs, ended: null, givenUp: false, inbound }
    this.#connected.set(machineId, { ...state, abort, unusedFor: () => unused } as unknown as MeshConnection)
  }

  /** Completes the pending dials successfully. */
  async answerAll(openedAtMs: number): Promise<void> {
    for (const { machineId, outcome } of this.dials) {
      this.connect(machineId, openedAtMs)
      outcome.resolve(this.#connected.get(machineId)!)
    }
    await new Promise((resolve) => setImmediate(resolve))
  }

  disconnect(machineId: MachineId, ended: string): void {
    const connection = this.#connected.get(machineId)!
    this.#connected.delete(machineId)
    this.#lose({ ...connection, ended } as MeshConnection)
  }

  /** Fails the pending dials, and waits for the consequences. */
  async failAll(): Promise<void> {
    for (const { outcome } of this.dials) outcome.reject(new AppError('peer_unreachable'))
    await new Promise((resolve) => setImmediate(resolve))
  }
}
