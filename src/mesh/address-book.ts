import { BoundedMap } from '../base/bounded-collections.ts'
import type { AgentId, MachineId } from '../protocol/ids.ts'
import { MAX_DIAL_ADDRESSES, MAX_STANDING_CONNECTIONS } from '../protocol/limits/wire.ts'
import type { TrustLevel } from '../protocol/reasons.ts'
import { hostOfText, parseAddress } from './addresses.ts'
import type { SeenAgent } from './known-agents.ts'
import { MAX_CLAIMS_TRIED, type Presences } from './presences.ts'

/**
 * Of the machines of all accepted contacts those to which a connection stands: all of them while they are few, else the ones at
 * 1, 2, 4, 8 … places to both sides of ours on the ring of their ids: some twice the logarithm of their number. Who has the
 * same contacts comes to the same pairs, so each connection serves both ends; the nearest alone make a ring, so that gossip reaches everybody.
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

/** Known machines found on the local network by mDNS whose addresses are kept. */
export const MAX_MDNS_PEERS = 256

/** A contact as far as dialling is concerned. */
export interface BookContact {
  readonly agent_id: AgentId
  readonly trust: TrustLevel
  readonly machines: readonly MachineId[]
  readonly addresses: readonly string[]
}

/** A machine where an agent may be found, best address first. */
export interface DialCandidate {
  readonly machineId: MachineId
  readonly addresses: readonly string[]
  /** The machine says that the agent is on it, and nothing proves it. */
  readonly isClaim?: true
}

export interface AddressBookComponents {
  /** The same list as long as it is unchanged. */
  readonly contacts: () => readonly BookContact[]
  readonly seen: () => readonly SeenAgent[]
  /** Where machines say that they are, and whose they claim to be. */
  readonly presences?: Pick<Presences, 'claimsOf' | 'of'>
}

export interface AddressBookInit {
  /** Addresses that end in `/p2p/…`; others are left out. */
  readonly bootstrap: readonly string[]
  /** This machine: never a candidate, whoever names it. Also its place on the ring of all machines. */
  readonly self?: MachineId
  /** Agents to whose machines a connection stands however many contacts there are. */
  readonly keep?: readonly AgentId[]
  /** To how many machines of the other contacts a connection stands. */
  readonly standing?: number
}

/**
 * Where agents and machines may be reached: their presences and fetched cards (freshest first), imported cards,
 * the bootstrap list, and the local network. It knows addresses, not truth: whoever answers still has to prove itself.
 */
export class AddressBook {
  readonly #contacts: () => readonly BookContact[]
  readonly #seen: () => readonly SeenAgent[]
  readonly #presences: AddressBookComponents['presences']
  readonly #bootstrap: ReadonlyMap<MachineId, readonly string[]>
  readonly #local = new BoundedMap<MachineId, readonly string[]>({ max: MAX_MDNS_PEERS })
  /** The addresses of each contact's card, by machine. Parsed once for each contact of a snapshot, because `homes` and `#index` ask for them again and again. */
  readonly #cards = new WeakMap<BookContact, ReadonlyMap<MachineId, readonly string[]>>()
  #indexed: ContactIndex | null = null

  readonly #self: MachineId
  readonly #keep: ReadonlySet<AgentId>
  readonly #standing: number

  constructor(components: AddressBookComponents, init: AddressBookInit) {
    this.#self = init.self ?? ''
    this.#keep = new Set(init.keep)
    this.#standing = init.standing ?? MAX_STANDING_CONNECTIONS
    this.#contacts = components.contacts
    this.#seen = components.seen
    this.#presences = components.presences
    const bootstrap = byMachine(init.bootstrap)
    // One list may serve all machines of a fleet.
    bootstrap.delete(this.#self)
    this.#bootstrap = bootstrap
  }

  get bootstrapMachines(): MachineId[] {
    return [...this.#bootstrap.keys()]
  }

  /** A known machine was found by mDNS. */
  learnLocal(machineId: MachineId, addresses: readonly string[]): void {
    this.#local.set(machineId, addresses.slice(0, MAX_DIAL_ADDRESSES))
  }

  isContact(agentId: AgentId): boolean {
    return this.#index().byAgent.has(agentId)
  }

  /** Whether no pin forbids this agent on this machine. */
  leavesRoomFor(agentId: AgentId, machineId: MachineId): boolean {
    return this.#isAllowedOn(this.#index().byAgent.get(agentId), machineId)
  }

  /** Whether our own rules leave room for this contact on this machine. */
  mayBe(agentId: AgentId, machineId: MachineId): boolean {
    const contact = this.#index().byAgent.get(agentId)
    return contact !== undefined && contact.trust !== 'blocked' && this.#isAllowedOn(contact, machineId)
  }

  /**
   * Machines of an agent; of a contact with pins only the pinned ones, since our own rules would reject any other. Behind
   * those that are proven a few that merely claim to be its: the handshake will show.
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

  /** Those of mDNS come last, because any host of the local network can name addresses that accept and say nothing. */
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

  /** Hosts in the cards of contacts that are not blocked, and in the bootstrap list: IP addresses only, no DNS names. */
  get listedHosts(): ReadonlySet<string> {
    return this.#index().hosts
  }

  /** Machines worth a standing connection: the bootstrap list, where kept contacts live, and of the other known and trusted ones as many as `persistentPeers` says. */
  wanted(): MachineId[] {
    const { accepted, kept } = this.homes()
    return [...new Set([...this.#bootstrap.keys(), ...kept, ...persistentPeers(this.#self, accepted, this.#standing)])]
  }

  /** Machines of contacts that are not blocked: `accepted` of those of level `known` or `trusted`, `kept` of these the ones to be kept, `named` of the rest. Goes through all contacts and fetched cards once. */
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

  /** Pins bind a contact to its machines, and no agent but our own is on this machine. */
  #isAllowedOn(contact: BookContact | undefined, machineId: MachineId): boolean {
    const isPinned = contact !== undefined && contact.machines.length > 0
    return machineId !== this.#self && (!isPinned || contact.machines.includes(machineId))
  }

  /** Made anew only when the list of contacts is another one. */
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
  /** See `listedHosts`. */
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
