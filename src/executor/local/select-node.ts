import { isIPv4, isIPv6 } from 'node:net'
import { AppError } from '../../base/errors.ts'
import { isHexId } from '../../protocol/ids.ts'
import { MIN_ID_PREFIX } from '../../protocol/limits.ts'

/** An agent of the mesh, as this host's daemon knows it. */
export interface KnownNode {
  readonly agent_id: string
  /** What the operator calls it; null: it is no contact, and what it says of itself counts for nothing. */
  readonly contact: string | null
  /** What it calls itself. */
  readonly names: readonly string[]
  /** Where it is reached, such as `/ip4/192.0.2.7/tcp/5483`. */
  readonly addresses: readonly string[]
}

/** The one that was meant. */
export interface SelectedNode {
  readonly agent_id: string
  /** The contact's name; null where it has none. */
  readonly name: string | null
}

const HEX_PREFIX = /^[0-9a-f]{1,64}$/

/** One text for names that a person takes for the same: case, blanks, `_`, `.` and `-` make no difference. */
export const normalName = (name: string): string =>
  name
    .normalize('NFKC')
    .toLowerCase()
    .trim()
    .replaceAll(/[\s_.-]+/gu, '-')

const isAddress = (text: string): boolean => text.startsWith('/') || isIPv4(text) || isIPv6(text) || /^[^/]+:\d+$/.test(text)

/** `/ip4/192.0.2.7/tcp/5483` is also `192.0.2.7` and `192.0.2.7:5483`. */
const isAt = (address: string, text: string): boolean => {
  const [, , host, , port] = address.split('/')
  return text === address || text === host || text === `${host}:${port}` || text === `[${host}]:${port}`
}

/** By what the operator calls them: as it is written, else however it is. */
const byName = (contacts: readonly KnownNode[], text: string): KnownNode[] => {
  const wanted = normalName(text)
  const exact = contacts.filter(({ contact }) => contact === text)
  if (exact.length > 0 || wanted === '') return exact
  return contacts.filter(({ contact }) => normalName(contact ?? '') === wanted)
}

const byClaim = (contacts: readonly KnownNode[], text: string): KnownNode[] => {
  const wanted = normalName(text)
  return wanted === '' ? [] : contacts.filter(({ names }) => names.some((name) => normalName(name) === wanted))
}

/** Each step answers whoever it fits; the first that fits anybody decides. Strangers have an id, and no more: names and addresses anybody can claim. */
const fitting = (text: string, nodes: readonly KnownNode[]): KnownNode[] => {
  const contacts = nodes.filter(({ contact }) => contact !== null)
  const isPrefix = text.length >= MIN_ID_PREFIX && HEX_PREFIX.test(text)
  const ofPrefix = (from: readonly KnownNode[]): KnownNode[] => (isPrefix ? from.filter(({ agent_id }) => agent_id.startsWith(text)) : [])
  const steps = [
    () => byName(contacts, text),
    () => (isAddress(text) ? contacts.filter(({ addresses }) => addresses.some((address) => isAt(address, text))) : []),
    () => ofPrefix(contacts),
    // Anybody can make an id that begins as a contact's does.
    () => ofPrefix(nodes),
    // A contact may call itself as another one is called, or after its address or its id.
    () => byClaim(contacts, text),
  ]
  for (const step of steps) {
    const found = [...new Map(step().map((node) => [node.agent_id, node])).values()]
    if (found.length > 0) return found
  }
  return []
}

/**
 * The node that a text means: its whole id; else the name of a contact, however it is written; else the address at which a contact is
 * reached; else the beginning of an id, of contacts before others; else what a contact calls itself. Throws `unknown_agent`, or
 * `ambiguous_agent` with `data.candidates`.
 */
export const selectNode = (text: string, nodes: readonly KnownNode[]): SelectedNode => {
  if (isHexId(text)) return { agent_id: text, name: nodes.find(({ agent_id }) => agent_id === text)?.contact ?? null }
  const found = fitting(text, nodes)
  const [first, ...others] = found
  if (first === undefined)
    throw new AppError(
      'unknown_agent',
      `node: no contact has the name or the address ${JSON.stringify(text)}, and no id begins so (at least ${MIN_ID_PREFIX} characters); x0x contacts list names them`,
    )
  if (others.length === 0) return { agent_id: first.agent_id, name: first.contact }
  const candidates = found.map(({ agent_id, contact }) => ({ agent_id, name: contact }))
  const list = candidates.map(({ agent_id, name }) => (name === null ? agent_id : `${name} (${agent_id})`)).join(', ')
  throw new AppError('ambiguous_agent', `node: ${JSON.stringify(text)} could be ${list}; say which by its id`, { data: { candidates } })
}
