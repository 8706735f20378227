import { systemClock } from '../src/base/clock.ts'
import { silentLogger } from '../src/base/log.ts'
import { agentSignerOf } from '../src/identity/agent-key.ts'
import { signCard } from '../src/identity/card.ts'
import { randomBytes } from '../src/identity/hash.ts'
import { machineKeyOf } from '../src/identity/machine-key.ts'
import { AddressBook } from '../src/mesh/address-book.ts'
import { KnownAgents } from '../src/mesh/known-agents.ts'
import { Beacon } from '../src/mesh/beacon.ts'
import { Cards } from '../src/mesh/cards.ts'
import { MeshNode } from '../src/mesh/node.ts'
import { SelfCard } from '../src/mesh/self-card.ts'
import { Presences, type PresenceRecord } from '../src/mesh/presences.ts'
import { Reconnect } from '../src/mesh/reconnect.ts'
import { PeerClasses } from '../src/mesh/peer-classes.ts'
import { ANNOUNCE_DOMAIN } from '../src/protocol/wire/card.ts'
import type { MachineId } from '../src/protocol/ids.ts'
import { RECORD_TTL_MS } from '../src/protocol/limits/wire.ts'

/** Only the parts of a daemon for discovery, without contacts. It signs its card itself. */
export const startMeshPart = async (bootstrap: readonly string[]) => {
  const [clock, log] = [systemClock, silentLogger]
  const [signer, machineKey] = [agentSignerOf(randomBytes(32)), machineKeyOf(randomBytes(32))]
  const { machineId } = machineKey
  const executor = { snapshot: { contacts: [], known_pairs: [] }, onSnapshot: () => undefined } as never
  const node = new MeshNode({ machineKey, clock, log }, { listen: ['/ip4/127.0.0.1/tcp/0'], mdns: false, acceptsUnlisted: true })
  const judges = { clock, isContact: () => false, isKnown: (id: MachineId) => node.isKnown(id) }
  const knownAgents = new KnownAgents(judges)
  const presences = new Presences(judges, { self: machineId })
  const book = new AddressBook({ contacts: () => [], presences, seen: () => knownAgents.list() }, { bootstrap })
  const peerClasses = new PeerClasses({ node, book, executor })
  const reconnect = new Reconnect({ node, book, peerClasses, executor, clock, log })
  const sign = async (addresses: string[]) => {
    const issued_at_ms = clock.now()
    const body = { version: 1 as const, agent_public_key: signer.publicKey, machine_id: machineId, name: 'bench', addresses }
    return signCard(signer, { ...body, issued_at_ms, expires_at_ms: issued_at_ms + RECORD_TTL_MS }, ANNOUNCE_DOMAIN)
  }
  const selfCard = new SelfCard({ node, clock, sign })
  const cards = new Cards({ node, presences, knownAgents, book, selfCard, onNewcomer: () => reconnect.poll(), clock, log })
  const onHeard = (heard: PresenceRecord): void => cards.heard(heard)
  const beacon = new Beacon({ node, presences, selfCard, onHeard, clock, log }, { agentId: signer.agentId })
  peerClasses.start()
  node.classOf = (id) => peerClasses.of(id)
  cards.start()
  beacon.start()
  await node.start()
  reconnect.start()
  const stop = async (): Promise<void> => {
    reconnect.stop()
    beacon.stop()
    cards.stop()
    await node.stop()
  }
  return { node, knownAgents, cards, presences, stop }
}
