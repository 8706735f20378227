import type { Clock } from '../base/clock.ts'
import type { MeshCounts, PeerJson } from '../protocol/api-answers.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import type { AgentRecords } from './agent-records.ts'
import type { Cards } from './cards.ts'
import type { MeshConnection } from './connection.ts'
import type { KnownAgents, SeenAgent } from './known-agents.ts'
import type { MeshNode } from './node.ts'
import type { Presences } from './presences.ts'
import type { Reconnect } from './reconnect.ts'
import type { Relays } from './relays.ts'

export interface MeshViewComponents {
  readonly node: MeshNode
  readonly knownAgents: KnownAgents
  readonly presences: Pick<Presences, 'counts' | 'list'>
  readonly cards: Pick<Cards, 'counts'>
  readonly records: Pick<AgentRecords, 'counts' | 'refused'>
  readonly reconnect: Reconnect
  readonly relays: Pick<Relays, 'isPublic' | 'status'>
  readonly clock: Clock
  /** Whose link a connected machine holds, as the room above knows it. */
  readonly linkedAgent: (machineId: MachineId) => AgentId | null
}

export type MeshDiagnostics = ReturnType<MeshView['diagnostics']>

/** To how many machines a connection is to stand, and to how many it does. */
const standingOf = (reconnect: Reconnect): { wanted: number; connected: number } => {
  const wanted = reconnect.status()
  return { wanted: wanted.length, connected: wanted.filter(({ connected }) => connected).length }
}

/** What this daemon can show of the mesh. */
export class MeshView {
  readonly #parts: MeshViewComponents

  constructor(components: MeshViewComponents) {
    this.#parts = components
  }

  /** Every machine that is connected, or whose card is known. */
  peers(): PeerJson[] {
    const seen = this.#parts.knownAgents.list()
    const connected = new Set(this.#parts.node.connections().map((connection) => connection.machineId))
    const speaking = new Set(seen.map((agent) => agent.machine_id))
    const silent = [...connected].filter((machineId) => !speaking.has(machineId))
    return [...seen.map((agent) => this.#peer(agent.machine_id, agent)), ...silent.map((machineId) => this.#peer(machineId, null))]
  }

  counts(): MeshCounts {
    const { node, knownAgents, presences, reconnect } = this.#parts
    const connected = new Set(node.connections().map(({ machineId }) => machineId)).size
    return { heard: presences.list().length, known: knownAgents.list().length, standing: reconnect.status().length, connected }
  }

  /** `/diagnostics/mesh`. */
  diagnostics() {
    const { node, knownAgents, cards, presences, records, reconnect, relays } = this.#parts
    const now = this.#parts.clock.now()
    return {
      machine_id: node.machineId,
      listening: node.listening,
      strangers: node.strangersMayCome,
      addresses: node.addresses(),
      connections: node.connections().map((connection) => ({
        machine_id: connection.machineId,
        agent_id: this.#parts.linkedAgent(connection.machineId),
        address: connection.address,
        direction: connection.inbound ? 'inbound' : 'outbound',
        relay: connection.relay,
        age_secs: Math.round((now - connection.openedAtMs) / 1000),
        rtt_ms: connection.rttMs,
        received: connection.received,
      })),
      standing: standingOf(reconnect),
      reach: { public: relays.isPublic, relays: relays.status(), carrying: node.reach.carrier?.diagnostics() ?? null },
      wanted: reconnect.status(),
      ...node.refusals(),
      presences: { heard: presences.list().length, ...presences.counts },
      cards: { known: knownAgents.list().length, ...cards.counts },
      records: { ...records.counts, refused: records.refused },
      hash_table: node.table.diagnostics(),
    }
  }

  /** Whose machine it is: proven, or else said. */
  #agentOn(machineId: MachineId): AgentId | null {
    const seen = this.#parts.knownAgents.list().find((one) => one.machine_id === machineId)
    return this.#parts.linkedAgent(machineId) ?? seen?.agent_id ?? null
  }

  #lastHeard(connections: readonly MeshConnection[]): string {
    return new Date(this.#parts.clock.now() - Math.min(...connections.map(({ silentMs }) => silentMs))).toISOString()
  }

  #peer(machineId: MachineId, seen: SeenAgent | null): PeerJson {
    const connections = this.#parts.node.connectionsTo(machineId)
    const connection = connections.find(({ relay }) => relay === null) ?? connections[0]
    const relay = connection?.relay ?? null
    const linked = this.#parts.linkedAgent(machineId)
    return {
      agent_id: seen?.agent_id ?? linked,
      machine_id: machineId,
      name: seen?.name ?? null,
      addresses: [...(seen?.addresses ?? (connection === undefined ? [] : [connection.address]))],
      connected: connection !== undefined,
      linked: linked !== null && (seen === null || linked === seen.agent_id),
      relayed_by: relay === null ? null : { agent_id: this.#agentOn(relay), machine_id: relay },
      rtt_ms: connection?.rttMs ?? null,
      last_heard: connection === undefined ? null : this.#lastHeard(connections),
      last_seen: seen === null ? null : new Date(seen.issued_at_ms).toISOString(),
    }
  }
}
