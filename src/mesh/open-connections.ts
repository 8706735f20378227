import type { Connection } from '@libp2p/interface'
import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { MachineId } from '../protocol/ids.ts'
import { machineIdOf } from './addresses.ts'
import { MeshConnection } from './connection.ts'
import type { Traffic } from './libp2p/traffic.ts'

export interface OpenConnectionsInit {
  /** Returns false if the connection exceeded a limit and ends. */
  maySend(connection: MeshConnection, traffic: Traffic): boolean
  /** Called once per connection, before any other use. */
  onOpened(connection: Connection, wrapped: MeshConnection): void
}

/** The open connections of this machine, each with the machine at its other end. */
export class OpenConnections {
  readonly #clock: Pick<Clock, 'monotonic'>
  readonly #init: OpenConnectionsInit
  readonly #all = new Map<Connection, MeshConnection>()
  readonly #byMachine = new Map<MachineId, readonly MeshConnection[]>()
  readonly #onDisconnected = new Set<(connection: MeshConnection) => void>()

  constructor(components: { clock: Pick<Clock, 'monotonic'> }, init: OpenConnectionsInit) {
    this.#clock = components.clock
    this.#init = init
  }

  all(): MeshConnection[] {
    return [...this.#all.values()].filter((connection) => connection.open)
  }

  /** Oldest first. */
  to(machineId: MachineId): MeshConnection[] {
    return (this.#byMachine.get(machineId) ?? []).filter((connection) => connection.open)
  }

  onDisconnected(listener: (connection: MeshConnection) => void): void {
    this.#onDisconnected.add(listener)
  }

  abort(reason: AppError): void {
    for (const connection of this.#all.keys()) connection.abort(reason)
  }

  /** Null for a peer without a MachineId, whose connection is closed. */
  wrap(connection: Connection): MeshConnection | null {
    const known = this.#all.get(connection)
    if (known !== undefined) return known
    const machineId = machineIdOf(connection.remotePeer)
    if (machineId === null) {
      connection.abort(new AppError('peer_rejected', 'only Ed25519 machines'))
      return null
    }
    const wrapped = new MeshConnection({ connection, clock: this.#clock }, { machineId })
    wrapped.meter((traffic) => this.#init.maySend(wrapped, traffic))
    if (connection.status !== 'open') return wrapped
    this.#init.onOpened(connection, wrapped)
    this.#all.set(connection, wrapped)
    this.#byMachine.set(machineId, [...(this.#byMachine.get(machineId) ?? []), wrapped])
    connection.addEventListener('close', ({ error }) => {
      wrapped.ended ??= error === undefined ? 'ended by the other side' : `lost: ${errorText(error)}`
      this.#forget(connection, wrapped)
    })
    return wrapped
  }

  #forget(connection: Connection, wrapped: MeshConnection): void {
    const { machineId } = wrapped
    this.#all.delete(connection)
    const others = (this.#byMachine.get(machineId) ?? []).filter((one) => one !== wrapped)
    if (others.length === 0) this.#byMachine.delete(machineId)
    else this.#byMachine.set(machineId, others)
    for (const listener of this.#onDisconnected) listener(wrapped)
  }
}
