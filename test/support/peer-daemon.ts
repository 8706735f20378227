import type { ApiCall, LocalApi } from '../../src/clients/daemon.ts'
import type { Clock } from '../../src/base/clock.ts'
import { DaemonLists } from '../../src/programs/ui/daemon-lists.ts'
import { PeerList } from '../../src/programs/ui/peer-list.ts'

export interface DaemonPeer {
  readonly name: string
  readonly isLinked: boolean
  /** ISO 8601, or null for a contact that the daemon never saw. */
  readonly seen: string | null
  /** Version that it reports, or null if it does not answer. */
  readonly version: string | null
}

const idOf = (at: number): string => at.toString(16).padStart(64, '0')

/** The list of peers of a daemon that knows exactly these contacts. */
export const peerListOf = (all: readonly DaemonPeer[], clock: Clock): PeerList => {
  const contacts = all.map(({ name }, at) => ({
    name,
    agent_id: idOf(at),
    trust: 'known',
    machines: [],
    addresses: [],
    formerly: [],
    labels: {},
    revoked: false,
    revoked_machines: [],
  }))
  const peers = all.flatMap(({ name, isLinked, seen }, at) => {
    const state = { connected: isLinked, linked: isLinked, relayed_by: null, rtt_ms: null, last_heard: null, last_seen: seen }
    return seen === null ? [] : [{ agent_id: idOf(at), machine_id: idOf(at), name, addresses: [], ...state }]
  })
  const json = async ({ path, body }: ApiCall): Promise<unknown> => {
    if (path === '/agents/ping') {
      const { agent_id } = body as { agent_id: string }
      const version = all[Number.parseInt(agent_id, 16)]?.version ?? null
      if (version === null) throw new Error('it does not answer')
      return { agent_id, machine_id: agent_id, rtt_ms: 1, version, clock_ahead_ms: 0 }
    }
    if (path === '/contacts') return { ok: true, contacts, groups: [] }
    if (path === '/agent') return { ok: true, agent_id: idOf(999_999), machine_id: idOf(999_999), name: 'bob', version: '1' }
    return { ok: true, peers, mesh: { heard: 0, known: 0, standing: 0, connected: 0 } }
  }
  const api = { json, read: json } as unknown as LocalApi
  return new PeerList({ api, clock, lists: new DaemonLists({ api, clock }) })
}
