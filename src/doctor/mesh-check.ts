import { counted } from '../base/format.ts'
import type { DaemonConfig } from '../config/config.ts'
import { entriesOfBefore, newKeyLine, newKeyText } from '../policy/mesh/authorize.ts'
import { inspectAcl } from '../policy/mesh/load-acl.ts'
import { Contacts } from '../trust/contacts.ts'
import { type Finding, ok, warn } from './findings.ts'

/** The size of the mesh that a daemon sees. `standing` is the number of persistent connections, wanted or present, with its noun. */
export const meshSizeText = (
  { heard, known, connected }: { readonly heard: number; readonly known: number; readonly connected: number },
  standing: string,
): string => `${counted(heard, 'machine')} heard of, ${counted(known, 'agent')} known, ${standing}, ${connected} connected`

/** An entry of `/peers`. */
export interface PeerConnections {
  readonly peers: readonly { readonly connected: boolean }[]
}

/** The answer of `/diagnostics/mesh`. */
export interface MeshReport {
  readonly connections: readonly { readonly direction: string; readonly relay: string | null; readonly machine_id: string }[]
  readonly reach: {
    readonly public: boolean
    readonly relays: readonly {
      readonly connected: boolean
      readonly reserved_until: string | null
      readonly last_error: string | null
    }[]
  }
  readonly presences: { readonly heard: number }
  readonly cards: { readonly known: number }
  readonly standing: { readonly wanted: number; readonly connected: number }
  readonly records: { readonly published: number; readonly looked_for: number; readonly found: number }
  readonly hash_table: { readonly mode: string; readonly peers: number; readonly connected: number; readonly records: number }
}

export const checkPeers = ({ peers }: PeerConnections): Finding => {
  const connected = peers.filter((peer) => peer.connected).length
  return connected > 0
    ? ok('peers', `${connected} connected`)
    : warn('peers', 'none is connected', 'x0x contacts import LINK, or --bootstrap; see x0x diagnostics mesh')
}

/** How others reach the daemon: directly, through relays, or not as far as it knows. */
const checkReachability = ({ connections, reach }: MeshReport): Finding => {
  const places = reach.relays.filter(({ reserved_until: until }) => until !== null).length
  if (places > 0) return ok('reachability', `other machines reach it through ${counted(places, 'relay')}`)
  const [wanted] = reach.relays
  if (wanted !== undefined)
    return warn(
      'reachability',
      `no configured relay accepts it: ${wanted.last_error ?? (wanted.connected ? 'it does not relay' : 'not connected')}`,
      'on the relay: relay = true, and this agent as a known or trusted contact; see x0x diagnostics mesh',
    )
  if (reach.public)
    return ok('reachability', 'other machines can connect: it relays, announces an address, or a contact has used its public address')
  const came = connections.filter(({ direction, relay }) => direction === 'inbound' && relay === null).length
  if (came > 0) return ok('reachability', `other machines connect to it (${came}); it has no known public address and no relay`)
  return warn(
    'reachability',
    'no machine has connected to it, and it has no known public address and no relay: with NAT, other machines cannot reach it',
    'set relay = true on a contact that both can reach, or forward a port and set announce: docs/nat.md',
  )
}

/** The size of the mesh, as `x0x peers` shows it, and how many persistent connections exist. */
const checkSize = ({ connections, presences, cards, standing }: MeshReport): Finding[] => {
  const connected = new Set(connections.map(({ machine_id: machine }) => machine)).size
  const there = `${standing.connected} of ${counted(standing.wanted, 'persistent connection')}`
  const text = meshSizeText({ heard: presences.heard, known: cards.known, connected }, there)
  return [
    standing.wanted > 0 && standing.connected === 0
      ? warn('mesh', text, 'for the reasons: x0x diagnostics mesh (wanted); see docs/troubleshoot.md')
      : ok('mesh', text),
  ]
}

const checkDht = ({ hash_table: table, records }: MeshReport): Finding[] => {
  if (table.mode === 'off') return [ok('DHT', 'off: only contacts and nearby peers can be found')]
  const asked = `${records.found} of ${counted(records.looked_for, 'look-up')} succeeded`
  const text = `${table.mode}: ${counted(table.peers, 'peer')} (${table.connected} connected), ${counted(table.records, 'record')} stored, own record published ${counted(records.published, 'time')}, ${asked}`
  return [
    table.mode === 'client' && table.peers === 0
      ? warn('DHT', text, 'set dht = "server", or announce, on a daemon of the bootstrap list; see docs/large-meshes.md')
      : ok('DHT', text),
  ]
}

/** The size and the reachability of a running daemon. */
export const checkMesh = (mesh: MeshReport): Finding[] => [...checkSize(mesh), ...checkDht(mesh), checkReachability(mesh)]

/** ACL entries for former keys of a contact, each with the line to write. Other findings report problems of the files. */
export const successorDoubts = async (
  aclPath: string,
  contactsPath: string,
): Promise<{ readonly text: string; readonly remedy: string }[]> => {
  const contacts = new Contacts({ path: contactsPath })
  const { acl } = await inspectAcl(aclPath)
  const isRead = await contacts.load().then(
    () => true,
    () => false,
  )
  if (acl === null || !isRead) return []
  return contacts.list().flatMap((contact) =>
    entriesOfBefore(acl, contact).map((entry) => ({
      text: `${aclPath}: ${newKeyText(entry)}: ${contact.name}`,
      remedy: `write into the file: ${newKeyLine(contact)}`,
    })),
  )
}

export const checkSuccessors = async ({ exec_acl, paths }: DaemonConfig): Promise<Finding[]> =>
  (await successorDoubts(exec_acl, paths.contacts)).map(({ text, remedy }) => warn('ACL', text, remedy))
