import { BoundedMap } from '../base/bounded-collections.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_DIAL_ADDRESSES, MAX_STANDING_CONNECTIONS } from '../protocol/limits/wire.ts'
import type { TrustLevel } from '../protocol/reasons.ts'
import { hostOfText, parseAddress } from './addresses.ts'
import type { SeenAgent } from './known-agents.ts'
import { MAX_CLAIMS_TRIED, type Presences } from './presences.ts'

/**
 * Selects the accepted contacts' machines that get a persistent connection. If they are few, it selects all. Otherwise it takes the
 * machines at distances 1, 2, 4, 8 … on both sides of this one on the ring of IDs. These are about twice the logarithm of their number.
 * Machines with the same contacts select the same pairs, so each connection serves both ends. The nearest neighbours form a ring, so that
 * gossip reaches every machine.
 */
export const persistentPeers = (self: MachineId, machines: readonly MachineId[], most: number): MachineId[] => {
  const others = [...new Set(machines)].filter((one) => one !== self)
  if (others.length <= most) return others
  const ring = [...others, self].toSorted()
  const at = ring.indexOf(self)
  const chosen = new Set<MachineId>()
  for (let step = 1; step <= ring.length / 2; step *= 2)
    for (const place of [at + step, at - step]) if (chosen.size < most) chosen.add(ring.at(place % ring.length)!)
  return [...chosen]
}

/** Known machines found by mDNS whose addresses are stored. */
export const MAX_MDNS_PEERS = 256

/** The fields of a contact that dialling needs. */
export interface BookContact {
  readonly agent_id: AgentId
  readonly trust: TrustLevel
  readonly machines: readonly MachineId[]
  readonly addresses: readonly string[]
}

/** A machine that may have an agent, best address first. */
export interface DialCandidate {
  readonly machineId: MachineId
  readonly addresses: readonly string[]
  /** The machine claims to have the agent, without proof. */
  readonly isClaim?: true
}

export interface AddressBookComponents {
  /** Returns the same list until it changes. */
  readonly contacts: () => readonly BookContact[]
  readonly seen: () => readonly SeenAgent[]
  /** Addresses and claims from presences. */
  readonly presences?: Pick<Presences, 'claimsOf' | 'of'>
}

export interface AddressBookInit {
  /** Addresses that end in `/p2p/…`. Others are ignored. */
  readonly bootstrap: readonly string[]
  /** This machine, which is never a candidate. */
  readonly self?: MachineId
  /** Agents whose machines always get a persistent connection. */
  readonly keep?: readonly AgentId[]
  /** Number of persistent connections to machines of other contacts. */
  readonly persistent?: number
}

/**
 * Addresses of agents and machines, from presences and fetched cards (newest first), imported cards, the bootstrap list and mDNS. Addresses
 * are only hints. A machine must prove its key after the dial.
 */
export class AddressBook {
  readonly #contacts: () => readonly BookContact[]
  readonly #seen: () => readonly SeenAgent[]
  readonly #presences: AddressBookComponents['presences']
  readonly #bootstrap: ReadonlyMap<MachineId, readonly string[]>
  readonly #local = new BoundedMap<MachineId, readonly string[]>({ max: MAX_MDNS_PEERS })
  /** Addresses on each contact's card, by machine. Cached, because `homes` and `#index` need them often. */
  readonly #cards = new WeakMap<BookContact, ReadonlyMap<MachineId, readonly string[]>>()
  #indexed: ContactIndex | null = null

  readonly #self: MachineId
  readonly #keep: ReadonlySet<AgentId>
  readonly #persistent: number

  constructor(components: AddressBookComponents, init: AddressBookInit) {
    this.#self = init.self ?? ''
    this.#keep = new Set(init.keep)
    this.#persistent = init.persistent ?? MAX_STANDING_CONNECTIONS
    this.#contacts = components.contacts
    this.#seen = components.seen
    this.#presences = components.presences
    const bootstrap = byMachine(init.bootstrap)
    // One bootstrap list may serve all machines of a fleet.
    bootstrap.delete(this.#self)
    this.#bootstrap = bootstrap
  }

  get bootstrapMachines(): MachineId[] {
    return [...this.#bootstrap.keys()]
  }

  /** Stores the addresses of a known machine that mDNS found. */
  learnLocal(machineId: MachineId, addresses: readonly string[]): void {
    this.#local.set(machineId, addresses.slice(0, MAX_DIAL_ADDRESSES))
  }

  isContact(agentId: AgentId): boolean {
    return this.#index().byAgent.has(agentId)
  }

  /** Whether the pins allow this agent on this machine. */
  leavesRoomFor(agentId: AgentId, machineId: MachineId): boolean {
    return this.#isAllowedOn(this.#index().byAgent.get(agentId), machineId)
  }

  /** Whether trust level and pins allow this contact on this machine. */
  mayBe(agentId: AgentId, machineId: MachineId): boolean {
    const contact = this.#index().byAgent.get(agentId)
    return contact !== undefined && contact.trust !== 'blocked' && this.#isAllowedOn(contact, machineId)
  }

  /**
   * Machines of an agent. A contact with pins has only the pinned ones. After proven machines come a few that only claim to have the agent,
   * which the handshake will verify.
   */
  candidates(agentId: AgentId): DialCandidate[] {
    const seen = this.#seen().filter((one) => one.agent_id === agentId)
    const contact = this.#index().byAgent.get(agentId)
    const proven = this.#machinesOf(contact, seen)
    const claims = (this.#presences?.claimsOf(agentId) ?? []).filter((one) => !proven.includes(one) && this.#isAllowedOn(contact, one))
    const candidateOf = (machineId: MachineId): DialCandidate => ({ machineId, addresses: this.addressesOf(machineId) })
    return [
      ...proven.map(candidateOf),
      ...claims.slice(0, MAX_CLAIMS_TRIED).map((one): DialCandidate => ({ ...candidateOf(one), isClaim: true })),
    ]
  }

  /** Addresses of a machine. Those of mDNS come last, because any host of the local network can publish addresses that accept and stay silent. */
  addressesOf(machineId: MachineId): string[] {
    const fetched = this.#seen().filter((one) => one.machine_id === machineId)
    const all = [
      ...(this.#presences?.of(machineId)?.addresses ?? []),
      ...fetched.flatMap((one) => one.addresses),
      ...(this.#index().addresses.get(machineId) ?? []),
      ...(this.#bootstrap.get(machineId) ?? []),
      ...(this.#local.get(machineId) ?? []),
    ]
    return [...new Set(all)]
  }

  /** IP addresses in the bootstrap list and on the cards of contacts that are not blocked. */
  get listedHosts(): ReadonlySet<string> {
    return this.#index().hosts
  }

  /** Machines that get a persistent connection, from the bootstrap list, kept contacts, and `persistentPeers`. */
  wanted(): MachineId[] {
    const { accepted, kept } = this.homes()
    return [...new Set([...this.#bootstrap.keys(), ...kept, ...persistentPeers(this.#self, accepted, this.#persistent)])]
  }

  /**
   * Machines of contacts that are not blocked. `accepted` has those of `known` and `trusted` contacts, and `named` the rest. `kept` is the
   * part of `accepted` that is always connected. Reads all contacts and fetched cards once.
   */
  homes(): Readonly<Record<'named' | 'accepted' | 'kept', MachineId[]>> {
    const seen = Map.groupBy(this.#seen(), (one) => one.agent_id)
    const homes: Record<'named' | 'accepted' | 'kept', MachineId[]> = { named: [], accepted: [], kept: [] }
    for (const contact of this.#contacts()) {
      if (contact.trust === 'blocked') continue
      const kind = contact.trust === 'unknown' ? 'named' : 'accepted'
      const machines = this.#machinesOf(contact, seen.get(contact.agent_id) ?? [])
      homes[kind].push(...machines)
      if (kind === 'accepted' && this.#keep.has(contact.agent_id)) homes.kept.push(...machines)
    }
    return homes
  }

  #machinesOf(contact: BookContact | undefined, seen: readonly SeenAgent[]): MachineId[] {
    const newestFirst = seen.toSorted((a, b) => b.issued_at_ms - a.issued_at_ms).map((one) => one.machine_id)
    const listed = contact === undefined ? [] : [...this.#cardOf(contact).keys(), ...contact.machines]
    return [...new Set([...newestFirst, ...listed])].filter((machine) => this.#isAllowedOn(contact, machine))
  }

  /** Pins limit a contact to its machines, and only the own agent is on this machine. */
  #isAllowedOn(contact: BookContact | undefined, machineId: MachineId): boolean {
    const isPinned = contact !== undefined && contact.machines.length > 0
    return machineId !== this.#self && (!isPinned || contact.machines.includes(machineId))
  }

  /** Rebuilt when the list of contacts changes. */
  #index(): ContactIndex {
    const contacts = this.#contacts()
    if (this.#indexed?.contacts === contacts) return this.#indexed
    const byAgent = new Map(contacts.map((contact) => [contact.agent_id, contact]))
    const addresses = new Map<MachineId, string[]>()
    for (const contact of contacts)
      for (const [machineId, texts] of this.#cardOf(contact)) addresses.set(machineId, [...(addresses.get(machineId) ?? []), ...texts])
    const welcome = contacts.filter(({ trust }) => trust !== 'blocked').flatMap((contact) => [...this.#cardOf(contact).values()])
    const hosts = new Set([...welcome, ...this.#bootstrap.values()].flat().flatMap((text) => hostOfText(text) ?? []))
    this.#indexed = { contacts, byAgent, addresses, hosts }
    return this.#indexed
  }

  #cardOf(contact: BookContact): ReadonlyMap<MachineId, readonly string[]> {
    const known = this.#cards.get(contact)
    if (known !== undefined) return known
    const card = byMachine(contact.addresses)
    this.#cards.set(contact, card)
    return card
  }
}

interface ContactIndex {
  readonly contacts: readonly BookContact[]
  readonly byAgent: ReadonlyMap<AgentId, BookContact>
  /** Addresses on the cards of all contacts, by machine. */
  readonly addresses: ReadonlyMap<MachineId, readonly string[]>
  readonly hosts: ReadonlySet<string>
}

const byMachine = (addresses: readonly string[]): Map<MachineId, string[]> => {
  const machines = new Map<MachineId, string[]>()
  for (const text of addresses) {
    const address = parseAddress(text)
    if (address === null) continue
    const known = machines.get(address.machineId)
    if (known === undefined) machines.set(address.machineId, [text])
    else known.push(text)
  }
  return machines
}
