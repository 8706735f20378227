import { randomBytes } from 'node:crypto'
import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import { VERSION } from '../../base/runtime.ts'
import type { StartableEntry } from '../../base/startable.ts'
import type { ApiSocket } from '../../doors/rest/services.ts'
import { DaemonMetrics } from '../../doors/rest/metrics.ts'
import { RestServer } from '../../doors/rest/server.ts'
import { AgentDirectory } from '../../exec/agents.ts'
import { ApproverClient } from '../../exec/approver-client.ts'
import { ExecClient } from '../../exec/client.ts'
import { RequesterCounters } from '../../exec/counters.ts'
import { DetachedRuns } from '../../exec/detached-runs.ts'
import { DetachedClient } from '../../exec/detached/detached-client.ts'
import { DetachedRunEvents } from '../../exec/detached/detached-events.ts'
import { Fanouts } from '../../exec/fleet/fanouts.ts'
import { RulesClient } from '../../exec/rules-client.ts'
import { RunTraces } from '../../exec/run-traces.ts'
import { ExecService } from '../../exec/service.ts'
import { TraceExport } from '../../exec/trace-export.ts'
import type { ExecutorClient } from '../../executor-api/client.ts'
import type { NetworkSettings } from '../../executor-api/messages.ts'
import type { MachineKey } from '../../identity/machine-key.ts'
import { primitives } from '../../identity/primitives.ts'
import { DmCounters } from '../../links/counters.ts'
import { Dispatcher } from '../../links/dispatcher.ts'
import { Links } from '../../links/links.ts'
import { Messages } from '../../links/messages.ts'
import { Pings } from '../../links/pings.ts'
import { AddressBook } from '../../mesh/address-book.ts'
import { AgentRecords } from '../../mesh/agent-records.ts'
import { Beacon } from '../../mesh/beacon.ts'
import { Cards } from '../../mesh/cards.ts'
import { RecordValidator } from '../../mesh/dht-record.ts'
import { DirectUpgrades } from '../../mesh/direct-upgrades.ts'
import type { DhtMode } from '../../mesh/dht.ts'
import { KnownAgents } from '../../mesh/known-agents.ts'
import { MeshNode } from '../../mesh/node.ts'
import { SelfCard } from '../../mesh/self-card.ts'
import { type PresenceRecord, Presences } from '../../mesh/presences.ts'
import { Reconnect } from '../../mesh/reconnect.ts'
import { Relays } from '../../mesh/relays.ts'
import { PeerClasses } from '../../mesh/peer-classes.ts'
import { MeshView } from '../../mesh/view.ts'
import { LifecycleLog } from '../../protocol/events/event-log.ts'
import { type AgentId, type MachineId, toHex } from '../../protocol/ids.ts'
import { RECORD_TTL_MS } from '../../protocol/limits/wire.ts'

/** What the network's half is made from; all of it comes from the executor. */
export interface NetworkDependencies {
  readonly settings: NetworkSettings
  readonly clock: Clock
  readonly log: Logger
  /** The machine's identity on the network. The agent's is the executor's alone. */
  readonly machineKey: MachineKey
  readonly apiSocket: ApiSocket
}

export interface ComposedNetwork {
  readonly entries: readonly StartableEntry[]
  /** Once started. */
  apiPort(): number
  /** How many connections there are to other machines. */
  connections(): number
}

/** A bootstrap list says that there is a mesh beyond the neighbourhood; an announced address, that this daemon can be reached there. */
const dhtModeOf = ({ dht, bootstrap, announce }: NetworkSettings): DhtMode =>
  dht !== 'auto' ? dht : bootstrap.length === 0 ? 'off' : announce.length === 0 ? 'client' : 'server'

/** Everything about where others are and how to reach them. */
const composeMesh = ({ settings, clock, log, machineKey }: NetworkDependencies, port: ExecutorClient) => {
  const { agentId } = port.identity
  const { machineId } = machineKey
  const contacts = () => port.snapshot.contacts
  const judge = new RecordValidator({ clock, isNamed: (id) => standings.isNamed(id) })
  const node = new MeshNode({ machineKey, clock, log, judge }, { ...settings, dht: dhtModeOf(settings) })
  const isContact = (id: AgentId): boolean => book.isContact(id)
  const isKnown = (id: MachineId): boolean => node.isKnown(id)
  const knownAgents = new KnownAgents({ clock, isContact, isKnown })
  const presences = new Presences({ clock, isContact, isKnown }, { self: machineId })
  const book = new AddressBook(
    { contacts, presences, seen: () => knownAgents.list() },
    { bootstrap: [...settings.bootstrap, ...settings.relays], keep: settings.keep, self: machineId },
  )
  const sign = async (addresses: string[]) =>
    port.signCard({ kind: 'announcement', name: settings.display_name, addresses, ttl_ms: RECORD_TTL_MS })
  const ownCard = new SelfCard({ node, clock, sign })
  const standings = new PeerClasses({ node, book, port })
  node.reach.accepts = (id) => standings.of(id) === 'accepted'
  const reachable = settings.relay || settings.announce.length > 0
  const relays = new Relays({ node, book, clock, log }, { configured: settings.relays, reachable })
  const ways = new DirectUpgrades({ node, book, clock, log })
  const reconnect = new Reconnect({ node, book, standings, port, clock, log })
  const records = new AgentRecords({ table: node.table, judge, ownCard, clock, log }, { agentId })
  const onNewcomer = (): void => reconnect.poll()
  const cards = new Cards({ node, presences, knownAgents, book, ownCard, onNewcomer, clock, log })
  const onHeard = (heard: PresenceRecord): void => cards.heard(heard)
  const beacon = new Beacon({ node, presences, ownCard, onHeard, clock, log }, { agentId })
  return { node, knownAgents, beacon, book, cards, presences, reconnect, records, relays, standings, ways }
}

type Mesh = ReturnType<typeof composeMesh>

/** Stages of runs in both halves, and where what they took goes. */
const composeTraces = (
  { settings, clock, log }: Pick<NetworkDependencies, 'settings' | 'clock' | 'log'>,
  url: string,
  counters: RequesterCounters,
) => {
  const sink = new TraceExport({ clock, counters, log }, { url, name: settings.display_name, version: VERSION })
  const runs = new RunTraces({ sink, counters, clock })
  return {
    runs,
    entries: [
      { name: 'export of traces', startable: sink },
      { name: 'traces', startable: runs },
    ],
  }
}

/** Links and messages over them; bodies of exec go to the executor. */
const composeDm = (
  { settings, clock, log, machineKey }: NetworkDependencies,
  port: ExecutorClient,
  { node, book, records, standings, ways }: Mesh,
) => {
  const counters = new DmCounters()
  const dispatcher = new Dispatcher({ counters, log })
  const links = new Links({ node, book, records, standings, port, machineKey, primitives: primitives(), dispatcher, counters, clock, log })
  const requester = new RequesterCounters()
  const traces = settings.otlp === null ? null : composeTraces({ settings, clock, log }, settings.otlp, requester)
  const onStrangerDenied = (peer: { number: number }): void => links.penalise(peer, 'denied')
  new ExecService({ executor: port, counters: requester, log, traces: traces?.runs ?? null, onStrangerDenied }).register(dispatcher)
  const messages = new Messages({ links, dispatcher, port, counters, clock, log })
  const pings = new Pings({ links, dispatcher, port, counters, clock }, { version: VERSION })
  const events = new LifecycleLog({ id: randomBytes(6).toString('hex'), now: () => clock.now() })
  const runner = new ExecClient({ links, executor: port, clock, counters: requester, lifecycle: events, traces: traces?.runs ?? null })
  const fanouts = new Fanouts({ clock, counters: requester, executor: port, runner })
  ways.isBusy = (connection) => links.isBusy(connection)
  links.onMoved((machineId) => runner.move(machineId))
  const rules = new RulesClient({ links, executor: port, clock, counters: requester })
  const engine = new DetachedClient({ links, executor: port, clock, counters: requester, traces: traces?.runs ?? null })
  const detached = new DetachedRuns({
    engine,
    asked: port.asked,
    clock,
    stories: new DetachedRunEvents({ executor: port, lifecycle: events }),
  })
  const approvers = new ApproverClient({ links, executor: port, clock, counters: requester, log })
  return { approvers, counters, detached, events, fanouts, links, messages, pings, rules, runner, tracing: traces?.entries ?? [] }
}

type Dm = ReturnType<typeof composeDm>

const composeRest = ({ settings, clock, log, apiSocket }: NetworkDependencies, port: ExecutorClient, mesh: Mesh, dm: Dm): RestServer => {
  const { knownAgents, cards, node, presences, reconnect, records, relays } = mesh
  const { counters: dmCounters, detached, events, fanouts, links, messages, pings, rules, runner } = dm
  const directory = new AgentDirectory({
    ownAgentId: () => port.identity.agentId,
    snapshot: () => port.snapshot,
    discovered: () => [...knownAgents.list(), ...presences.list()].map((agent) => agent.agent_id),
  })
  const view = new MeshView({
    node,
    knownAgents,
    presences,
    cards,
    records,
    reconnect,
    relays,
    clock,
    linkedAgent: (machineId) => links.linkedAgent(machineId),
  })
  const metrics = new DaemonMetrics({ executor: port, runner, dmCounters, links, view }, { version: VERSION })
  const { api_port, api_token, display_name: displayName, metrics_token } = settings
  const metricsToken = metrics_token === null ? null : toHex(metrics_token)
  return new RestServer(
    {
      runner,
      fanouts,
      rules,
      detached,
      events,
      directory,
      executor: port,
      links,
      node,
      view,
      messages,
      pings,
      dmCounters,
      metrics,
      clock,
      log,
    },
    { port: api_port, socket: apiSocket, token: toHex(api_token), metricsToken, displayName, version: VERSION },
  )
}

/** The half that parses the network's bytes. It can ask the executor, which it has greeted, and start nothing. */
export const composeNetwork = (dependencies: NetworkDependencies, port: ExecutorClient): ComposedNetwork => {
  const mesh = composeMesh(dependencies, port)
  const dm = composeDm(dependencies, port, mesh)
  const rest = composeRest(dependencies, port, mesh, dm)
  return {
    apiPort: () => rest.port,
    connections: () => mesh.node.connections().length,
    entries: [
      ...dm.tracing,
      { name: 'messages', startable: dm.messages },
      { name: 'pings', startable: dm.pings },
      { name: 'standings', startable: mesh.standings },
      { name: 'links', startable: dm.links },
      { name: 'cards', startable: mesh.cards },
      { name: 'presence', startable: mesh.beacon },
      { name: 'relays', startable: mesh.relays },
      { name: 'mesh', startable: mesh.node },
      { name: 'direct ways', startable: mesh.ways },
      { name: 'records', startable: mesh.records },
      { name: 'reconnect', startable: mesh.reconnect },
      { name: 'runs', startable: dm.runner },
      { name: 'fan-outs', startable: dm.fanouts },
      { name: 'approvers', startable: dm.approvers },
      { name: 'api', startable: rest },
    ],
  }
}
