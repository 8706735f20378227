import { AppError } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { machineIdOfText } from '../identity/machine-key.ts'
import type { MachineId } from '../protocol/ids.ts'
import type { Metered } from '../protocol/limits/mesh.ts'
import type { MeshConnection } from './connection.ts'
import type { GossipWatch } from './libp2p/gossip.ts'
import type { Traffic } from './libp2p/traffic.ts'
import type { Violation } from './penalties.ts'
import type { RateVerdict, Sources } from './sources.ts'

export interface PeerLimitsComponents {
  readonly sources: Sources
  readonly connections: { all(): readonly MeshConnection[]; to(machineId: MachineId): readonly MeshConnection[] }
  readonly log: Logger
}

/** Charges what peers do to their source (`Sources.charge`), and ends the connections of sources that do too much. */
export class PeerLimits implements GossipWatch {
  readonly #parts: PeerLimitsComponents

  constructor(components: PeerLimitsComponents) {
    this.#parts = components
  }

  /** Notes an offence of this peer's source. When the source is refused by that, all of its connections are aborted. */
  penalise(connection: MeshConnection, offence: Violation): void {
    const { connections, log, sources } = this.#parts
    const source = sources.of(connection)
    if (!sources.penalise(source, offence)) return
    log.info({ source, offence }, 'a source is refused for a while')
    const reason = new AppError('rate_limited', 'too many offences')
    for (const other of connections.all()) if (sources.of(other) === source) other.abort(reason)
  }

  /** Whether this peer may begin one more of it now. */
  mayBegin(connection: MeshConnection, what: Metered): boolean {
    return this.#parts.sources.charge(connection, what, 1) === 'allowed'
  }

  /** Charges frames that the muxer is about to get. No frame can be left out of a muxed connection, so where one is not allowed, for whatever reason, the connection is aborted. */
  maySend(connection: MeshConnection, traffic: Traffic): boolean {
    return Object.entries(traffic).every(([what, count]) => {
      const charge = count === 0 ? 'allowed' : this.#charge([connection], what as Metered, count)
      if (charge === 'crowded') connection.abort(tooMany(what))
      return charge === 'allowed'
    })
  }

  /** Charges the messages of one gossip batch; false drops the batch. */
  mayBring(neighbour: MachineId, messages: number): boolean {
    // gossipsub does not tell on which connection of the neighbour they came.
    return this.#charge(this.#parts.connections.to(neighbour), 'messages', messages) === 'allowed'
  }

  /** By what its meters count a machine; null for one that is not connected. */
  sourceOf(machineId: MachineId): string | null {
    const [connection] = this.#parts.connections.to(machineId)
    return connection === undefined ? null : this.#parts.sources.of(connection)
  }

  onInvalid(neighbour: string): void {
    const machineId = machineIdOfText(neighbour)
    const [connection] = machineId === null ? [] : this.#parts.connections.to(machineId)
    if (connection !== undefined) this.penalise(connection, 'bad_gossip')
  }

  /** `too_much` is an offence, and ends these connections. `crowded` is none: strangers together leave no room, and this one may have done little. */
  #charge(connections: readonly MeshConnection[], what: Metered, count: number): RateVerdict {
    const [first] = connections
    if (first === undefined) return 'too_much'
    const charge = this.#parts.sources.charge(first, what, count)
    if (charge !== 'too_much') return charge
    this.penalise(first, 'flood')
    for (const connection of connections) connection.abort(tooMany(what))
    return charge
  }
}

const tooMany = (what: string): AppError => new AppError('rate_limited', `too many ${what}`)
