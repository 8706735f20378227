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

interface PeerLimitsDeps {
  readonly sources: Sources
  readonly connections: { all(): readonly MeshConnection[]; to(machineId: MachineId): readonly MeshConnection[] }
  readonly log: Logger
}

/** Charges events of peers to their source (`Sources.charge`), and closes the connections of sources that exceed their limits. */
export class PeerLimits implements GossipWatch {
  readonly #deps: PeerLimitsDeps

  constructor(deps: PeerLimitsDeps) {
    this.#deps = deps
  }

  /** Records a violation of this peer's source. If the source is then refused, all its connections are aborted. */
  penalise(connection: MeshConnection, violation: Violation): void {
    const { connections, log, sources } = this.#deps
    const source = sources.of(connection)
    if (!sources.penalise(source, violation)) return
    log.info({ source, offence: violation }, 'a source is refused for a while')
    const reason = new AppError('rate_limited', 'too many offences')
    for (const other of connections.all()) if (sources.of(other) === source) other.abort(reason)
  }

  /** Whether this peer may start one more of these now. */
  mayBegin(connection: MeshConnection, what: Metered): boolean {
    return this.#deps.sources.charge(connection, what, 1) === 'allowed'
  }

  /** Charges frames before the muxer handles them. A muxed connection cannot skip a frame, so if one is not allowed, the connection is aborted. */
  maySend(connection: MeshConnection, traffic: Traffic): boolean {
    return Object.entries(traffic).every(([what, count]) => {
      const charge = count === 0 ? 'allowed' : this.#charge([connection], what as Metered, count)
      if (charge === 'crowded') connection.abort(tooMany(what))
      return charge === 'allowed'
    })
  }

  /** Charges the messages of one gossip batch; false drops the batch. */
  mayBring(neighbour: MachineId, messages: number): boolean {
    // gossipsub does not say on which connection they came.
    return this.#charge(this.#deps.connections.to(neighbour), 'messages', messages) === 'allowed'
  }

  /** The source of a machine; null if it is not connected. */
  sourceOf(machineId: MachineId): string | null {
    const [connection] = this.#deps.connections.to(machineId)
    return connection === undefined ? null : this.#deps.sources.of(connection)
  }

  onInvalid(neighbour: string): void {
    const machineId = machineIdOfText(neighbour)
    const [connection] = machineId === null ? [] : this.#deps.connections.to(machineId)
    if (connection !== undefined) this.penalise(connection, 'bad_gossip')
  }

  /** `too_much` is a violation, and closes these connections. `crowded` is not: all unlisted peers together exceed their limit, and this one may have done little. */
  #charge(connections: readonly MeshConnection[], what: Metered, count: number): RateVerdict {
    const [first] = connections
    if (first === undefined) return 'too_much'
    const charge = this.#deps.sources.charge(first, what, count)
    if (charge !== 'too_much') return charge
    this.penalise(first, 'flood')
    for (const connection of connections) connection.abort(tooMany(what))
    return charge
  }
}

const tooMany = (what: string): AppError => new AppError('rate_limited', `too many ${what}`)
