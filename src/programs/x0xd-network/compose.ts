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
import { ClientWork } from '../../exec/client-work.ts'
import { ExecClient } from '../../exec/client.ts'
import { RequesterCounters } from '../../exec/counters.ts'
import { DetachedRuns } from '../../exec/detached-runs.ts'
import { EnrolmentCarrier } from '../../exec/enrolment-carrier.ts'
import { DetachedClient } from '../../exec/detached/detached-client.ts'
import { DetachedRunEvents } from '../../exec/detached/detached-events.ts'
import { Fanouts } from '../../exec/fleet/fanouts.ts'
import { FileClient } from '../../exec/files/file-client.ts'
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
import { announceable } from '../../mesh/addresses.ts'
import { AgentRecords } from '../../mesh/agent-records.ts'
import { Beacon } from '../../mesh/beacon.ts'
import { Cards } from '../../mesh/cards.ts'
import { RecordValidator } from '../../mesh/dht-record.ts'
import { DirectUpgrades } from '../../mesh/direct-upgrades.ts'
import type { DhtMode } from '../../mesh/dht.ts'
import { KnownAgents } from '../../mesh/known-agents.ts'
import { MeshNode } from '../../mesh/node.ts'
import { SelfCard } from '../../mesh/self-card.ts'
import { Presences } from '../../mesh/presences.ts'
import { Reconnect } from '../../mesh/reconnect.ts'
import { Relays } from '../../mesh/relays.ts'
import { PeerClasses } from '../../mesh/peer-classes.ts'
import { MeshView } from '../../mesh/view.ts'
import { LifecycleLog } from '../../protocol/events/event-log.ts'
import { type AgentId, type MachineId, toHex } from '../../protocol/ids.ts'
import { RECORD_TTL_MS } from '../../protocol/limits/wire.ts'

export interface NetworkDependencies {
  /** The settings that the executor sent. */
  readonly settings: NetworkSettings
  readonly clock: Clock
  readonly log: Logger
  readonly machineKey: MachineKey
  readonly apiSocket: ApiSocket
}

export interface ComposedNetwork {
  readonly entries: readonly StartableEntry[]
  /** The port of the REST API, once it has started. */
  apiPort(): number
  connections(): number
}

/** A bootstrap list implies a mesh beyond the local network. An announced address implies that others can connect to this daemon. */
const dhtModeOf = ({ dht, bootstrap, announce }: NetworkSettings): DhtMode =>
  dht !== 'auto' ? dht : bootstrap.length === 0 ? 'off' : announce.length === 0 ? 'client' : 'server'

const composeMesh = ({ settings, clock, log, machineKey }: NetworkDependencies, executor: ExecutorClient) => {
  const { agentId } = executor.identity
  const { machineId } = machineKey
  const validator = new RecordValidator({ clock, isNamed: (id) => peerClasses.isNamed(id) })
  const node = new MeshNode(
    { machineKey, clock, log, validator },
    { ...settings, acceptsUnlisted: settings.strangers, dht: dhtModeOf(settings) },
  )
  const known = { clock, isContact: (id: AgentId): boolean => book.isContact(id), isKnown: (id: MachineId): boolean => node.isKnown(id) }
  const knownAgents = new KnownAgents(known)
  const presences = new Presences(known, { self: machineId })
  const book = new AddressBook(
    { contacts: () => executor.snapshot.contacts, presences, seen: () => knownAgents.list() },
    { bootstrap: [...settings.bootstrap, ...settings.relays], keep: settings.keep, self: machineId },
  )
  const sign = async (addresses: string[]) =>
    executor.signCard({ kind: 'announcement', name: settings.display_name, addresses, ttl_ms: RECORD_TTL_MS })
  const selfCard = new SelfCard({ node, clock, sign })
  const peerClasses = new PeerClasses({ node, book, executor })
  const services = { book, clock, validator, knownAgents, log, node, selfCard, executor, presences, peerClasses }
  node.reach.accepts = (id) => peerClasses.of(id) === 'accepted'
  const relays = new Relays(services, { configured: settings.relays, reachable: settings.relay || settings.announce.length > 0 })
  const upgrades = new DirectUpgrades(services)
  const reconnect = new Reconnect(services)
  const records = new AgentRecords({ ...services, table: node.table }, { agentId })
  const cards = new Cards({ ...services, onNewcomer: () => reconnect.poll() })
  const beacon = new Beacon({ ...services, onHeard: (heard) => cards.heard(heard) }, { agentId })
  return { ...services, beacon, cards, reconnect, records, relays, upgrades }
}

type Mesh = ReturnType<typeof composeMesh>

const composeLinks = ({ clock, log, machineKey }: NetworkDependencies, executor: ExecutorClient, mesh: Mesh) => {
  const counters = new DmCounters()
  const dispatcher = new Dispatcher({ counters, log })
  const services = { ...mesh, clock, counters, dispatcher, log, machineKey, executor, primitives: primitives() }
  const links = new Links(services)
  const messages = new Messages({ ...services, links })
  const pings = new Pings({ ...services, links }, { version: VERSION })
  mesh.upgrades.isBusy = (connection) => links.isBusy(connection)
  return { dispatcher, dmCounters: counters, links, messages, pings }
}

const composeExec = (
  { settings, clock, log }: NetworkDependencies,
  executor: ExecutorClient,
  mesh: Mesh,
  dm: ReturnType<typeof composeLinks>,
) => {
  const { dispatcher, links } = dm
  const counters = new RequesterCounters()
  const { otlp: url, display_name: name } = settings
  const sink = url === null ? null : new TraceExport({ clock, counters, log }, { url, name, version: VERSION })
  const traces = sink === null ? null : new RunTraces({ sink, counters, clock })
  const events = new LifecycleLog({ id: randomBytes(6).toString('hex'), now: () => clock.now() })
  const services = { clock, counters, executor, lifecycle: events, links, log, traces }
  new ExecService({ ...services, onUnlistedDenied: (peer) => links.penalise(peer, 'denied') }).register(dispatcher)
  const runner = new ExecClient(services)
  links.onMoved((machineId) => runner.move(machineId))
  const directory = new AgentDirectory({
    ownAgentId: () => executor.identity.agentId,
    snapshot: () => executor.snapshot,
    discovered: () => [...mesh.knownAgents.list(), ...mesh.presences.list()].map((agent) => agent.agent_id),
  })
  return {
    approvers: new ApproverClient(services),
    detached: new DetachedRuns({
      engine: new DetachedClient(services),
      asked: executor.asked,
      clock,
      events: new DetachedRunEvents(services),
    }),
    directory,
    enrolment: new EnrolmentCarrier({ ...services, dispatcher, addresses: () => announceable(mesh.node.addresses()) }),
    events,
    files: new FileClient({ clock, runner }),
    fanouts: new Fanouts({ ...services, runner }),
    rules: new RulesClient(services),
    runner,
    tracing: sink === null || traces === null ? [] : [named('export of traces', sink), named('traces', traces)],
  }
}

const named = (name: string, startable: StartableEntry['startable']): StartableEntry => ({ name, startable })

/** Composes the network process, which parses network input. It reaches the executor through `executor` and starts no programs. */
export const composeNetwork = (dependencies: NetworkDependencies, executor: ExecutorClient): ComposedNetwork => {
  const { settings, clock, log, apiSocket } = dependencies
  const mesh = composeMesh(dependencies, executor)
  const dm = composeLinks(dependencies, executor, mesh)
  const exec = composeExec(dependencies, executor, mesh, dm)
  const view = new MeshView({ ...mesh, linkedAgent: (machineId) => dm.links.linkedAgent(machineId) })
  const services = { ...dm, ...exec, executor, node: mesh.node, view, clock, log }
  const { api_port, api_token, display_name: displayName, metrics_token } = settings
  const metricsToken = metrics_token === null ? null : toHex(metrics_token)
  const rest = new RestServer(
    { ...services, metrics: new DaemonMetrics(services, { version: VERSION }) },
    { port: api_port, socket: apiSocket, token: toHex(api_token), metricsToken, displayName, version: VERSION },
  )
  return {
    apiPort: () => rest.port,
    connections: () => mesh.node.connections().length,
    entries: [
      ...exec.tracing,
      named('messages', dm.messages),
      named('pings', dm.pings),
      named('peer classes', mesh.peerClasses),
      named('links', dm.links),
      named('cards', mesh.cards),
      named('presence', mesh.beacon),
      named('relays', mesh.relays),
      named('mesh', mesh.node),
      named('direct ways', mesh.upgrades),
      named('records', mesh.records),
      named('reconnect', mesh.reconnect),
      named('runs', exec.runner),
      named('fan-outs', exec.fanouts),
      named('approvers', exec.approvers),
      named('work of clients', new ClientWork({ ...exec, clock, executor })),
      named('enrolment', exec.enrolment),
      named('api', rest),
    ],
  }
}
