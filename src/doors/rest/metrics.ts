import { ERROR_TABLE } from '../../base/errors.ts'
import { type Family, type Metric, byLabel, counter, counterMetrics, exposition, familiesOf, gauge, merged } from '../../base/metrics.ts'
import { type ProcessUsage, processUsage, usageMetrics } from '../../base/process-info.ts'
import type { ExecClient } from '../../exec/client.ts'
import { REQUESTER_COUNTERS, type RequesterCounter } from '../../exec/counters.ts'
import type { ExecutorClient } from '../../executor-api/client.ts'
import { DM_COUNTERS, type DmCounters, type DmDiagnostics } from '../../links/counters.ts'
import type { Links } from '../../links/links.ts'
import type { MeshDiagnostics, MeshView } from '../../mesh/view.ts'

interface NetworkFacts {
  readonly version: string
  readonly requester: Readonly<Record<RequesterCounter, number>>
  /** Runs that this daemon requested and that have not ended. */
  readonly active: number
  readonly dm: DmDiagnostics
  readonly links: number
  readonly mesh: MeshDiagnostics
  readonly usage: ProcessUsage
}

const directions = ({ mesh: { connections } }: NetworkFacts): Record<string, number> => {
  const inbound = connections.filter(({ direction }) => direction === 'inbound').length
  return { inbound, outbound: connections.length - inbound }
}

/** Only codes of the error table become labels. */
const linkFailures = ({ dm: { link_failures } }: NetworkFacts): Record<string, number> =>
  Object.fromEntries(Object.entries(link_failures).filter(([code]) => Object.hasOwn(ERROR_TABLE, code)))

/** Metrics of the network process: links, mesh, and the runs that this daemon requested. */
export const NETWORK_METRICS: readonly Metric<NetworkFacts>[] = [
  gauge('x0x_build_info', 'Always 1, by version', ({ version }) => byLabel('version', { [version]: 1 })),
  gauge('x0x_requester_runs_active', 'Requested runs that have not ended', ({ active }) => active),
  ...counterMetrics('x0x_requester', REQUESTER_COUNTERS, ({ requester }: NetworkFacts) => requester),
  gauge('x0x_dm_links', 'Open links', ({ links }) => links),
  ...counterMetrics('x0x_dm', DM_COUNTERS, ({ dm }: NetworkFacts) => dm),
  counter('x0x_dm_link_failures_total', 'Failed link handshakes, by error code', (facts) => byLabel('code', linkFailures(facts))),
  gauge('x0x_mesh_listening', '1 if peers can connect', ({ mesh }) => mesh.listening),
  gauge('x0x_mesh_connections', 'Open connections, by direction', (facts) => byLabel('direction', directions(facts))),
  gauge('x0x_mesh_known_agents', 'Agents with a known valid card', ({ mesh }) => mesh.cards.known),
  gauge('x0x_mesh_standing_connections', 'Persistent connections wanted', ({ mesh }) => mesh.standing.wanted),
  gauge('x0x_mesh_heard_machines', 'Machines heard recently', ({ mesh }) => mesh.presences.heard),
  gauge(
    'x0x_mesh_penalised_sources',
    'Sources refused because of violations',
    ({ mesh }) => mesh.penalties.filter(({ refused }) => refused).length,
  ),
  counter('x0x_mesh_presences_total', 'Presence messages received, by verdict', ({ mesh: { presences } }) => {
    const { heard: _heard, ...verdicts } = presences
    return byLabel('verdict', verdicts)
  }),
  counter('x0x_mesh_cards_total', 'Cards requested, learnt, refused and sent', ({ mesh: { cards } }) => {
    const { known: _known, ...counts } = cards
    return byLabel('what', counts)
  }),
  counter('x0x_mesh_records_total', 'DHT records published, looked up, found and refused', ({ mesh }) => byLabel('what', mesh.records)),
  gauge('x0x_mesh_hash_table_peers', 'DHT servers queried first', ({ mesh }) => mesh.hash_table.peers),
  gauge('x0x_mesh_hash_table_connected', 'Connected DHT servers of those queried first', ({ mesh }) => mesh.hash_table.connected),
  gauge('x0x_mesh_hash_table_records', 'Stored DHT records', ({ mesh }) => mesh.hash_table.records),
  counter('x0x_mesh_refused_connections_total', 'Connections refused, or closed to make room, by reason', ({ mesh }) =>
    byLabel('reason', mesh.refused),
  ),
  counter('x0x_mesh_metered_total', 'Actions refused by a rate limit, by kind', ({ mesh }) => byLabel('kind', mesh.metered)),
  counter('x0x_mesh_offences_total', 'Violations, by kind', ({ mesh }) => byLabel('offence', mesh.offences)),
  gauge(
    'x0x_mesh_relayed_connections',
    'Connections through a relay',
    ({ mesh }) => mesh.connections.filter(({ relay }) => relay !== null).length,
  ),
  gauge(
    'x0x_mesh_relay_places',
    'Relays through which this daemon can be reached',
    ({ mesh }) => mesh.reach.relays.filter(({ reserved_until: until }) => until !== null).length,
  ),
  gauge('x0x_mesh_carried_connections', 'Connections relayed for others', ({ mesh }) => mesh.reach.carrying?.carried.length ?? 0),
  counter('x0x_mesh_carried_bytes_total', 'Bytes relayed for others', ({ mesh }) => mesh.reach.carrying?.carried_bytes_total ?? 0),
  ...usageMetrics<NetworkFacts>('network'),
]

interface MetricSources {
  readonly executor: Pick<ExecutorClient, 'query'>
  readonly runner: Pick<ExecClient, 'diagnostics' | 'sessions'>
  readonly dmCounters: Pick<DmCounters, 'snapshot'>
  readonly links: Pick<Links, 'list'>
  readonly view: Pick<MeshView, 'diagnostics'>
}

export class DaemonMetrics {
  readonly #sources: MetricSources
  readonly #version: string

  constructor(sources: MetricSources, init: { readonly version: string }) {
    this.#sources = sources
    this.#version = init.version
  }

  /** In the text format of Prometheus. Throws if the executor does not answer. */
  async text(): Promise<string> {
    const { dmCounters, executor, links, runner, view } = this.#sources
    const executorFamilies = (await executor.query('metrics')) as Family[]
    const facts: NetworkFacts = {
      version: this.#version,
      requester: runner.diagnostics(),
      active: runner.sessions().length,
      dm: dmCounters.snapshot(),
      links: links.list().length,
      mesh: view.diagnostics(),
      usage: processUsage(),
    }
    return exposition(merged([...familiesOf(NETWORK_METRICS, facts), ...executorFamilies]))
  }
}
