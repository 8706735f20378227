import { AppError } from '../base/errors.ts'
import { didYouMean } from '../base/format.ts'
import { type Labels, NO_LABELS, labelsProblem } from '../protocol/hosts/labels.ts'
import { type AgentId, type MachineId, isHexId } from '../protocol/ids.ts'
import { isTable } from '../protocol/json-table.ts'
import { MAX_ADDRESS_TEXT, MAX_CARD_ADDRESSES, MAX_NAME, MIN_ID_PREFIX } from '../protocol/limits/wire.ts'
import { TRUST_LEVELS, type TrustCause, type TrustDecision, type TrustLevel } from '../protocol/reasons.ts'
import { type JsonPath, fileOf, listOf, objectOf, refuse, textOf, within } from './json-file.ts'

/** A saved agent, as an entry of `contacts.json` with its keys. Entries are replaced, never changed. */
export interface Contact {
  /** The operator's unique name for the agent. */
  readonly name: string
  readonly agent_id: AgentId
  readonly trust: TrustLevel
  readonly machines: readonly MachineId[]
  /** Addresses of the newest imported card. */
  readonly addresses: readonly string[]
  /** Earlier keys of the agent, the newest first. All of them are rejected. */
  readonly formerly: readonly AgentId[]
  /** The operator's labels, which select hosts of a command. They do not permit any command. */
  readonly labels: Labels
  /** base64url, or null if the contact did not come from a card. */
  readonly agent_public_key: string | null
  /** Epoch milliseconds. An older card is ignored. */
  readonly card_issued_at_ms: number | null
}

const NAME = /^[A-Za-z0-9._][A-Za-z0-9._-]*$/
const LOOKS_LIKE_ID = new RegExp(`^[0-9a-f]{${MIN_ID_PREFIX},}$`, 'i')
const ID_PREFIX = new RegExp(`^[0-9a-f]{${MIN_ID_PREFIX},64}$`)
const BASE64URL = /^[A-Za-z0-9_-]+$/

/** Why a name is invalid, or null. A name must not look like an option or an ID prefix. */
export const nameProblem = (name: string): string | null => {
  if (name.length < 1 || name.length > MAX_NAME) return `a name has 1 to ${MAX_NAME} characters`
  if (!NAME.test(name)) return 'a name consists of letters, digits, ".", "_" and "-", and does not begin with "-"'
  if (LOOKS_LIKE_ID.test(name)) return `a name of ${MIN_ID_PREFIX} or more hex digits looks like an id`
  return null
}

/** Why this agent cannot be added by this name, or null if it can. The agent has stated its ID and not yet proven its key. */
export const meetProblem = (
  contacts: readonly Pick<Contact, 'name' | 'agent_id' | 'trust'>[],
  name: string,
  agentId: AgentId,
): string | null => {
  const owner = contacts.find((contact) => contact.name === name)
  if (owner !== undefined && owner.agent_id !== agentId) return `the name ${name} belongs to agent ${owner.agent_id}; choose another`
  const known = contacts.find((contact) => contact.agent_id === agentId)
  if (known?.trust === 'blocked')
    return `this agent is ${known.name}, which is blocked; unblock it first: x0x contacts trust ${known.name} known`
  return known === undefined || known.name === name
    ? null
    : `this agent is the contact ${known.name} (conflict), not ${name}: use that name, or rename it first: x0x contacts import LINK --as ${name} --rename`
}

const idOf = (value: unknown, place: JsonPath): string =>
  typeof value === 'string' && isHexId(value) ? value : refuse(place, 'expected 64 lower-case hex digits')

const nullOr = <T>(value: unknown, place: JsonPath, field: (value: unknown, place: JsonPath) => T): T | null =>
  value === null ? null : field(value, place)

const timeOf = (value: unknown, place: JsonPath): number =>
  typeof value === 'number' && Number.isSafeInteger(value) && value >= 0 ? value : refuse(place, 'expected epoch milliseconds')

const addressOf = (value: unknown, place: JsonPath): string => {
  const address = textOf(value, place)
  return address.startsWith('/') && Buffer.byteLength(address) <= MAX_ADDRESS_TEXT ? address : refuse(place, 'expected a multiaddr')
}

const uniqueListOf = <T>(value: unknown, place: JsonPath, item: (value: unknown, place: JsonPath) => T): T[] => {
  const items = listOf(value, place, item)
  items.forEach((one, index) => items.indexOf(one) !== index && refuse(within(place, index), 'appears twice'))
  return items
}

const labelsOf = (value: unknown, place: JsonPath): Labels => {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return refuse(place, 'expected an object')
  const pairs = Object.entries(value)
  for (const [key, text] of pairs) textOf(text, within(place, key))
  const labels: Labels = Object.fromEntries(pairs)
  const problem = labelsProblem(labels)
  return problem === null ? labels : refuse(place, problem)
}

/** Fields of `NOTHING_MORE` may be absent. */
const KEYS = ['name', 'agent_id', 'trust', 'machines', 'addresses', 'agent_public_key', 'card_issued_at_ms', 'formerly', 'labels'] as const
const NOTHING_MORE = { formerly: [], labels: NO_LABELS }

const contactOf = (value: unknown, place: JsonPath): Contact => {
  const entry = objectOf(isTable(value) ? { ...NOTHING_MORE, ...value } : value, KEYS, place)
  const at = (key: (typeof KEYS)[number]): JsonPath => within(place, key)
  const name = textOf(entry.name, at('name'))
  const problem = nameProblem(name)
  if (problem !== null) refuse(at('name'), problem)
  const addresses = listOf(entry.addresses, at('addresses'), addressOf)
  if (addresses.length > MAX_CARD_ADDRESSES) refuse(at('addresses'), `at most ${MAX_CARD_ADDRESSES}`)
  return {
    name,
    agent_id: idOf(entry.agent_id, at('agent_id')),
    trust: TRUST_LEVELS.find((level) => level === entry.trust) ?? refuse(at('trust'), `expected one of ${TRUST_LEVELS.join(', ')}`),
    machines: uniqueListOf(entry.machines, at('machines'), idOf),
    addresses,
    formerly: uniqueListOf(entry.formerly, at('formerly'), idOf),
    labels: labelsOf(entry.labels, at('labels')),
    agent_public_key: nullOr(entry.agent_public_key, at('agent_public_key'), (key, where) => {
      const text = textOf(key, where)
      return BASE64URL.test(text) ? text : refuse(where, 'expected base64url')
    }),
    card_issued_at_ms: nullOr(entry.card_issued_at_ms, at('card_issued_at_ms'), timeOf),
  }
}

const FILE_VERSION = 1

/** The contacts of a parsed `contacts.json`. Throws `bad_contacts` with file and place. */
export const contactsOf = (value: unknown, file: string): Contact[] => {
  const place: JsonPath = { file, code: 'bad_contacts', path: '' }
  const root = fileOf(value, FILE_VERSION, ['contacts'], place)
  const list = within(place, 'contacts')
  const contacts = listOf(root.contacts, list, contactOf)
  for (const key of ['name', 'agent_id'] as const) {
    const seen = new Set<string>()
    contacts.forEach((contact, index) => {
      if (seen.has(contact[key])) refuse(within(within(list, index), key), 'appears twice')
      seen.add(contact[key])
    })
  }
  return contacts
}

export const contactsFile = (contacts: readonly Contact[]): unknown => ({
  version: FILE_VERSION,
  contacts: contacts.map(({ formerly, labels, ...contact }) => ({
    ...contact,
    ...(formerly.length > 0 && { formerly }),
    ...(Object.keys(labels).length > 0 && { labels }),
  })),
})

/** Finds a contact by 64 hex digits, name, or unique ID prefix. Throws `unknown_agent`, or `ambiguous_agent` with `data.candidates`. */
export const findContact = <C extends Pick<Contact, 'name' | 'agent_id'>>(contacts: readonly C[], query: string): C => {
  const found = contacts.find((contact) => contact.name === query || contact.agent_id === query)
  if (found) return found
  const fitting = ID_PREFIX.test(query) ? contacts.filter((contact) => contact.agent_id.startsWith(query)) : []
  const [first, ...others] = fitting
  if (!first) {
    const names = contacts.map(({ name }) => name)
    const problem = `no contact matches ${JSON.stringify(query)} (unknown_agent)${didYouMean(query, names)}`
    throw new AppError('unknown_agent', problem, { data: { agent: query } })
  }
  if (others.length === 0) return first
  const candidates = fitting.map(({ name, agent_id }) => ({ name, agent_id }))
  const list = candidates.map(({ name, agent_id }) => `${name} (${agent_id})`).join(', ')
  throw new AppError('ambiguous_agent', `${query} matches ${fitting.length} contacts: ${list}`, { data: { candidates } })
}

export interface TrustPair {
  /** Null if the agent is not a contact. */
  readonly contact: Pick<Contact, 'trust' | 'machines'> | null
  /** The machine that the connection authenticated. */
  readonly machineId: MachineId
  /** True if the agent has revoked its key, or its presence on this machine. */
  readonly revoked: boolean
}

export interface TrustVerdict {
  readonly decision: TrustDecision
  readonly cause: TrustCause
}

/** Trust decision about one (agent, machine), and its reason. Total and without side effects. Only `accept` allows a command. */
export const judgeTrust = ({ contact, machineId, revoked }: TrustPair): TrustVerdict => {
  if (revoked) return { decision: 'reject_revoked', cause: 'revoked' }
  if (contact === null) return { decision: 'unknown', cause: 'no_contact' }
  const { trust, machines } = contact
  if (trust === 'blocked') return { decision: 'reject_blocked', cause: 'blocked' }
  const pinned = machines.includes(machineId)
  if (machines.length > 0 && !pinned) return { decision: 'reject_machine_mismatch', cause: 'pinned_elsewhere' }
  switch (trust) {
    case 'trusted':
      return { decision: 'accept', cause: pinned ? 'trusted_and_pinned' : 'trusted' }
    case 'known':
      return pinned ? { decision: 'accept', cause: 'known_and_pinned' } : { decision: 'accept_with_flag', cause: 'known' }
    case 'unknown':
      return { decision: 'unknown', cause: 'level_unknown' }
  }
}

export const decideTrust = (pair: TrustPair): TrustDecision => judgeTrust(pair).decision
