import type { MeshCounts, PeerJson } from '../protocol/api-answers.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import type { AgentRecords } from './agent-records.ts'
import type { Cards } from './cards.ts'
import type { MeshConnection } from './connection.ts'
import type { SeenAgent } from './known-agents.ts'
import type { Reconnect } from './reconnect.ts'
import type { Relays } from './relays.ts'
import type { MeshServices } from './services.ts'

type MeshViewDeps = Pick<MeshServices, 'clock' | 'knownAgents' | 'node' | 'presences'> & {
  readonly cards: Pick<Cards, 'counts'>
  readonly records: Pick<AgentRecords, 'counts' | 'refused'>
  readonly reconnect: Pick<Reconnect, 'status'>
  readonly relays: Pick<Relays, 'isPublic' | 'status'>
  /** The agent that a connected machine has proven, or null without a link. */
  readonly linkedAgent: (machineId: MachineId) => AgentId | null
}

export type MeshDiagnostics = ReturnType<MeshView['diagnostics']>

/** Number of wanted persistent connections, and of existing ones. */
const persistentCounts = (reconnect: Pick<Reconnect, 'status'>): { wanted: number; connected: number } => {
  const wanted = reconnect.status()
  return { wanted: wanted.length, connected: wanted.filter(({ connected }) => connected).length }
}

/** The state of the mesh, for display. */
export class MeshView {
  readonly #deps: MeshViewDeps

  constructor(deps: MeshViewDeps) {
    this.#deps = deps
  }

  /** Every machine that is connected or whose card is known. */
  peers(): PeerJson[] {
    const seen = this.#deps.knownAgents.list()
    const connected = new Set(this.#deps.node.connections().map((connection) => connection.machineId))
    const speaking = new Set(seen.map((agent) => agent.machine_id))
    const silent = [...connected].filter((machineId) => !speaking.has(machineId))
    return [...seen.map((agent) => this.#peer(agent.machine_id, agent)), ...silent.map((machineId) => this.#peer(machineId, null))]
  }

  counts(): MeshCounts {
    const { node, knownAgents, presences, reconnect } = this.#deps
    const connected = new Set(node.connections().map(({ machineId }) => machineId)).size
    return { heard: presences.list().length, known: knownAgents.list().length, standing: reconnect.status().length, connected }
  }

  /** `/diagnostics/mesh`. */
  diagnostics() {
    const { node, knownAgents, cards, presences, records, reconnect, relays } = this.#deps
    const now = this.#deps.clock.now()
    return {
      machine_id: node.machineId,
      listening: node.listening,
      strangers: node.acceptsUnlisted,
      addresses: node.addresses(),
      connections: node.connections().map((connection) => ({
        machine_id: connection.machineId,
        agent_id: this.#deps.linkedAgent(connection.machineId),
        address: connection.address,
        direction: connection.inbound ? 'inbound' : 'outbound',
        relay: connection.relay,
        age_secs: Math.round((now - connection.openedAtMs) / 1000),
        rtt_ms: connection.rttMs,
        received: connection.received,
      })),
      standing: persistentCounts(reconnect),
      reach: { public: relays.isPublic, relays: relays.status(), carrying: node.reach.carrier?.diagnostics() ?? null },
      wanted: reconnect.status(),
      ...node.refusals(),
      presences: { heard: presences.list().length, ...presences.counts },
      cards: { known: knownAgents.list().length, ...cards.counts },
      records: { ...records.counts, refused: records.refused },
      hash_table: node.table.diagnostics(),
    }
  }

  /** The agent that a link proved for a machine, or else the agent that its card names. */
  #agentOn(machineId: MachineId): AgentId | null {
    const seen = this.#deps.knownAgents.list().find((one) => one.machine_id === machineId)
    return this.#deps.linkedAgent(machineId) ?? seen?.agent_id ?? null
  }

  #lastHeard(connections: readonly MeshConnection[]): string {
    return new Date(this.#deps.clock.now() - Math.min(...connections.map(({ silentMs }) => silentMs))).toISOString()
  }

  #peer(machineId: MachineId, seen: SeenAgent | null): PeerJson {
    const connections = this.#deps.node.connectionsTo(machineId)
    const connection = connections.find(({ relay }) => relay === null) ?? connections[0]
    const relay = connection?.relay ?? null
    const linked = this.#deps.linkedAgent(machineId)
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
