import { once } from 'node:events'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { duplexPair } from 'node:stream'
import type { TestContext } from 'node:test'
import { groupCells, until } from './processes.ts'

import { Journal } from '../../src/journal/journal.ts'
import { RunningMarks } from '../../src/journal/running-marks.ts'
import { systemClock, type Clock } from '../../src/base/clock.ts'
import { silentLogger } from '../../src/base/log.ts'
import { startAll, stopAll, type StartableEntry } from '../../src/base/startable.ts'
import { ExecCounters } from '../../src/executor/exec-counters.ts'
import { DmCounters } from '../../src/links/counters.ts'
import { Dispatcher } from '../../src/links/dispatcher.ts'
import { Links } from '../../src/links/links.ts'
import { Messages } from '../../src/links/messages.ts'
import { Pings } from '../../src/links/pings.ts'
import { RequesterCounters } from '../../src/exec/counters.ts'
import { ExecService } from '../../src/exec/service.ts'
import { DetachedRequestStore } from '../../src/executor/requested-detached.ts'
import { Executor } from '../../src/executor/executor.ts'
import { ExecutorClient } from '../../src/executor-api/client.ts'
import { loadOrCreateAgentKey } from '../../src/identity/agent-key.ts'
import { signCard, verifyCard } from '../../src/identity/card.ts'
import { loadOrCreateMachineKey } from '../../src/identity/machine-key.ts'
import { primitives } from '../../src/identity/primitives.ts'
import { AgentRecords } from '../../src/mesh/agent-records.ts'
import { RecordValidator } from '../../src/mesh/dht-record.ts'
import { AddressBook } from '../../src/mesh/address-book.ts'
import { Beacon } from '../../src/mesh/beacon.ts'
import { Cards } from '../../src/mesh/cards.ts'
import { SelfCard } from '../../src/mesh/self-card.ts'
import { Presences, type PresenceRecord } from '../../src/mesh/presences.ts'
import { DirectUpgrades } from '../../src/mesh/direct-upgrades.ts'
import { Relays } from '../../src/mesh/relays.ts'
import { KnownAgents } from '../../src/mesh/known-agents.ts'
import type { DhtMode } from '../../src/mesh/dht.ts'
import { MeshNode } from '../../src/mesh/node.ts'
import { Reconnect } from '../../src/mesh/reconnect.ts'
import { PeerClasses } from '../../src/mesh/peer-classes.ts'
import { MeshView } from '../../src/mesh/view.ts'
import { loadAcl } from '../../src/policy/mesh/load-acl.ts'
import { CleanupProcess } from '../../src/process/cleanup-process.ts'
import { CARD_DOMAIN } from '../../src/protocol/wire/card.ts'
import { RECORD_TTL_MS } from '../../src/protocol/limits/wire.ts'
import type { TrustLevel } from '../../src/protocol/reasons.ts'
import { Contacts } from '../../src/trust/contacts.ts'
import { Revocations } from '../../src/trust/revocations.ts'

export interface PeerInit {
  readonly name: string
  /** Directory of the keys. Default: a temporary directory. */
  readonly dataDir?: string
  /** Null: does not listen, so that others cannot dial it. */
  readonly listen?: string | null
  readonly bootstrap?: readonly string[]
  /** Agents to which a connection is kept, regardless of the number of contacts. */
  readonly keep?: readonly string[]
  /** The mode of the DHT. Default: off. */
  readonly dht?: DhtMode
  /** The number of other contacts with persistent connections. */
  readonly standing?: number
  readonly clock?: Clock
  /** The clock of penalties. */
  readonly penaltyClock?: Pick<Clock, 'monotonic'>
  /** Search the local network for peers. Default: false. */
  readonly mdns?: boolean
  /** Accept connections from unlisted peers. Default: true. */
  readonly strangers?: boolean
  /** The maximum number of connections. Default: `MAX_CONNECTIONS`. */
  readonly connections?: number
  /** Relay for its contacts. Default: false. */
  readonly relay?: boolean
  /** Addresses of the relays on which it reserves a place. */
  readonly relays?: readonly string[]
  /** The cleanup process. The caller starts it and stops it after the peer. By default, a peer that runs commands starts one. */
  readonly cleanup?: CleanupProcess
  /** Answers connections but never dials, announces or queries. Default: false. */
  readonly passive?: boolean
}

/** The parts of a passive peer that are started. */
const PASSIVE: readonly string[] = ['standings', 'links', 'messages', 'pings', 'mesh']

export type Peer = Awaited<ReturnType<typeof startPeer>>

/** Both processes of a daemon without its interfaces, on loopback. Keys, executor and libp2p are real. Its `exec-acl.toml` applies. */
export const startPeer = async (t: Pick<TestContext, 'after'>, init: PeerInit) => {
  const clock = init.clock ?? systemClock
  const log = silentLogger
  const dataDir = init.dataDir ?? (await freshDir(t))
  const machineKey = await loadOrCreateMachineKey(dataDir)
  const signer = await loadOrCreateAgentKey(dataDir)
  const contacts = new Contacts({ path: join(dataDir, 'contacts.json') })
  const revocations = new Revocations({ path: join(dataDir, 'revocations.json') })
  await contacts.load()
  await revocations.load()
  const acl = await loadAcl({ path: join(dataDir, 'exec-acl.toml'), explicit: false })
  const outgoing = new Journal({ clock, log }, { path: join(dataDir, 'requests.jsonl'), marks: null })
  await outgoing.start()
  const journalPath = acl.acl.audit_log_path
  const journal =
    journalPath === null
      ? null
      : new Journal(
          { clock, log },
          { path: journalPath, marks: new RunningMarks({ log }, { directory: join(dataDir, 'runs'), journal: journalPath }) },
        )
  await journal?.start()
  const cleanup = init.cleanup ?? new CleanupProcess({ log })
  const hasOwnGuardian = init.cleanup === undefined && journal !== null
  if (hasOwnGuardian) cleanup.start()
  const asked = new DetachedRequestStore({ clock, log }, { path: join(dataDir, 'detached-runs.json') })
  await asked.load()
  const executor = new Executor(
    {
      acl,
      asked,
      trees: await groupCells(),
      clock,
      contacts,
      counters: new ExecCounters({ clock }),
      cleanup,
      journal,
      outgoing,
      log,
      revocations,
      signer,
    },
    { dataDir, machineId: machineKey.machineId },
  )
  await executor.start()
  const [inside, outside] = duplexPair()
  executor.attach(inside)
  const executorClient = new ExecutorClient({ duplex: outside, log })
  await executorClient.start()
  const network = composeNetwork({ clock, log, machineKey, executor: executorClient }, { ...init, runs: journal !== null })
  await startAll(network.startables)
  let stopped = false
  const stop = async (): Promise<void> => {
    if (stopped) return
    stopped = true
    await stopAll(network.startables)
    await executor.stop()
    if (hasOwnGuardian) await cleanup.stop()
    await journal?.stop()
    await outgoing.stop()
    executorClient.stop()
    if (!outside.destroyed) outside.destroy()
    if (!inside.closed) await Promise.race([once(inside, 'close'), Promise.resolve(inside.destroy())])
  }
  t.after(stop)
  const card = async () => {
    const now = Date.now()
    const body = {
      version: 1 as const,
      agent_public_key: signer.publicKey,
      machine_id: machineKey.machineId,
      name: init.name,
      addresses: network.node.addresses(),
      issued_at_ms: now,
      expires_at_ms: now + 60_000,
    }
    return verifyCard(await signCard(signer, body, CARD_DOMAIN), CARD_DOMAIN, now)
  }
  return {
    ...network,
    dataDir,
    agentId: signer.agentId,
    machineId: machineKey.machineId,
    machineKey,
    signer,
    contacts,
    revocations,
    executor,
    executorClient,
    card,
    stop,
  }
}

interface NetworkComponents {
  readonly clock: Clock
  readonly log: typeof silentLogger
  readonly machineKey: Awaited<ReturnType<typeof loadOrCreateMachineKey>>
  readonly executor: ExecutorClient
}

const composeNetwork = (components: NetworkComponents, init: PeerInit & { readonly runs: boolean }) => {
  const { clock, executor } = components
  const validator = new RecordValidator({ clock, isNamed: (id) => peerClasses.isNamed(id) })
  const node = new MeshNode(
    { ...components, validator, clock: init.penaltyClock ?? clock },
    {
      listen: init.listen === null ? [] : [init.listen ?? '/ip4/127.0.0.1/tcp/0'],
      mdns: init.mdns ?? false,
      acceptsUnlisted: init.strangers ?? true,
      relay: init.relay ?? false,
      dht: init.dht ?? 'off',
      ...(init.connections !== undefined && { connections: init.connections }),
    },
  )
  const isContact = (agentId: string): boolean => book.isContact(agentId)
  const isKnown = (id: string): boolean => node.isKnown(id)
  const knownAgents = new KnownAgents({ clock, isContact, isKnown })
  const presences = new Presences({ clock, isContact, isKnown }, { self: node.machineId })
  const book = new AddressBook(
    { contacts: () => executor.snapshot.contacts, presences, seen: () => knownAgents.list() },
    {
      bootstrap: [...(init.bootstrap ?? []), ...(init.relays ?? [])],
      keep: init.keep ?? [],
      self: node.machineId,
      ...(init.standing !== undefined && { persistent: init.standing }),
    },
  )
  const peerClasses = new PeerClasses({ executor, node, book })
  node.reach.accepts = (machineId) => peerClasses.of(machineId) === 'accepted'
  const relays = new Relays({ ...components, node, book }, { configured: init.relays ?? [], reachable: init.relay ?? false })
  const ways = new DirectUpgrades({ ...components, node, book })
  const reconnect = new Reconnect({ ...components, node, book, peerClasses })
  const signAnnouncement = async (addresses: string[]) =>
    executor.signCard({ kind: 'announcement', name: init.name, addresses, ttl_ms: RECORD_TTL_MS })
  const selfCard = new SelfCard({ clock, node, sign: signAnnouncement })
  const cards = new Cards({ ...components, node, presences, knownAgents, book, selfCard, onNewcomer: () => reconnect.poll() })
  const onHeard = (heard: PresenceRecord): void => cards.heard(heard)
  const records = new AgentRecords({ ...components, table: node.table, validator, selfCard }, { agentId: executor.identity.agentId })
  const beacon = new Beacon({ ...components, node, presences, selfCard, onHeard }, { agentId: executor.identity.agentId })
  const counters = new DmCounters()
  const dispatcher = new Dispatcher({ ...components, counters })
  const links = new Links({ ...components, node, book, records, peerClasses, dispatcher, counters, primitives: primitives() })
  const exec = { executor, counters: new RequesterCounters(), log: components.log, traces: null, onUnlistedDenied: () => undefined }
  ways.isBusy = (connection) => links.isBusy(connection)
  if (init.runs) new ExecService(exec).register(dispatcher)
  const messages = new Messages({ ...components, links, dispatcher, counters })
  const pings = new Pings({ ...components, links, dispatcher, counters }, { version: '9.9.9' })
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
  const startables: StartableEntry[] = [
    { name: 'standings', startable: peerClasses },
    { name: 'links', startable: links },
    { name: 'messages', startable: messages },
    { name: 'pings', startable: pings },
    { name: 'cards', startable: cards },
    { name: 'presence', startable: beacon },
    { name: 'relays', startable: relays },
    { name: 'mesh', startable: node },
    { name: 'direct ways', startable: ways },
    { name: 'records', startable: records },
    { name: 'reconnect', startable: reconnect },
  ].filter(({ name }) => init.passive !== true || PASSIVE.includes(name))
  return {
    node,
    records,
    validator,
    knownAgents,
    presences,
    cards,
    beacon,
    book,
    reconnect,
    relays,
    ways,
    counters,
    links,
    dispatcher,
    messages,
    pings,
    view,
    startables,
  }
}

const freshDir = async (t: Pick<TestContext, 'after'>): Promise<string> => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-peer-'))
  // The peer may still write while it stops. A failed removal would skip the remaining hooks.
  t.after(async () => rm(dir, { recursive: true, force: true, maxRetries: 10 }))
  return dir
}

/** Imports the card of `other` into `who` with this trust level. With `pin`, pins it to its machine. */
export const introduce = async (who: Peer, other: Peer, trust: TrustLevel, pin = false): Promise<void> => {
  await who.contacts.importCard(await other.card(), { trust })
  if (pin) await who.contacts.pin(other.agentId, other.machineId)
  await until(() =>
    who.executorClient.snapshot.contacts.some(
      (one) => one.agent_id === other.agentId && one.trust === trust && (!pin || one.machines.length > 0),
    ),
  )
}
