import type { PeerId } from '@libp2p/interface'
import type { Multiaddr } from '@multiformats/multiaddr'
import { networkOf } from '../base/ip-network.ts'
import { addressProblem, dialProblem, isLoopbackText } from '../identity/address.ts'
import { machineIdOfText, peerIdOf } from '../identity/machine-key.ts'
import { type MachineId, toHex } from '../protocol/ids.ts'
import { MACHINE_ID_BYTES, MAX_ADDRESS_TEXT } from '../protocol/limits/wire.ts'

/** Separates a relay's address from the peer that it leads to. */
const CIRCUIT = '/p2p-circuit'
const ANYBODY = '-'

/** An address that can be dialled. It has a host, a TCP port and the machine that must answer, possibly through a relay. */
export interface PeerAddress {
  readonly text: string
  readonly machineId: MachineId
  /** Null for a direct address. */
  readonly relay: MachineId | null
}

/** Returns null unless the text is `/ip4|ip6|dns…/HOST/tcp/PORT/p2p/PEER` of an Ed25519 peer, or such an address of a relay followed by `/p2p-circuit/p2p/PEER`. */
export const parseAddress = (text: string): PeerAddress | null => {
  if (text.length > MAX_ADDRESS_TEXT) return null
  const machineId = machineIdOfText(text.slice(text.lastIndexOf('/') + 1))
  if (machineId === null || addressProblem(text, peerIdOf(machineId)) !== null) return null
  const relay = relayOfText(text)
  return relay === machineId || (text.includes(CIRCUIT) && relay === null) ? null : { text, machineId, relay }
}

/** The relay of an address, or null for a direct one. */
export const relayOfText = (text: string): MachineId | null => {
  const [relay, ...behind] = text.split(CIRCUIT)
  return behind.length === 0 ? null : machineIdOfText(relay!.slice(relay!.lastIndexOf('/') + 1))
}

/** The address of a machine through the relay at `relay`, which ends in the relay's `/p2p/…`. */
export const relayedAddress = (relay: string, machineId: MachineId): string => `${relay}${CIRCUIT}/p2p/${peerIdOf(machineId)}`

/** Addresses of a peer, each completed by its `/p2p/…`. */
export const addressesTo = (peer: PeerId, addresses: readonly Multiaddr[]): string[] =>
  addresses.map(String).map((text) => (text.endsWith(`/p2p/${peer.toString()}`) ? text : `${text}/p2p/${peer.toString()}`))

/** Whether the address can be dialled directly. The peer ID is not checked. */
export const isDirect = (address: Multiaddr): boolean => {
  const text = address.toString()
  if (text.length > MAX_ADDRESS_TEXT || text.includes(CIRCUIT)) return false
  return addressProblem(`${text.replace(/\/p2p\/[^/]*$/, '')}/p2p/${ANYBODY}`, ANYBODY) === null
}

/** The host of an address, as rate limits count it, with IPv6 hosts by their /64. Null for a DNS name or a relayed address. */
export const hostOfText = (text: string): string | null => {
  if (text.includes(CIRCUIT)) return null
  const [, protocol, value = ''] = text.split('/')
  if (protocol === 'ip4') return value
  return protocol === 'ip6' ? networkOf(value) : null
}

const RELAY_HOST = 'relay '

/** As `hostOfText`, for a connection. All connections through one relay count as one host, which differs from that of the relay itself. */
export const hostOf = (address: Multiaddr): string => {
  const text = address.toString()
  const relay = relayOfText(text)
  return relay === null ? (hostOfText(text) ?? text) : `${RELAY_HOST}${relay}`
}

/** Whether a result of `hostOf` means connections through a relay. */
export const isBehindRelay = (host: string): boolean => host.startsWith(RELAY_HOST)

/** Addresses to announce to other machines. Loopback addresses are used only if there are no others, because elsewhere they mean another machine. */
export const announceable = (addresses: readonly string[]): string[] => {
  const usable = addresses.filter((address) => dialProblem(address) === null)
  const outside = usable.filter((address) => !isLoopbackText(address))
  return outside.length > 0 ? outside : usable
}

/** Null if the peer's key is not an Ed25519 key, so that it has no MachineId. */
export const machineIdOf = (peer: PeerId): MachineId | null => {
  const raw = peer.type === 'Ed25519' ? peer.publicKey.raw : null
  return raw === null || raw.length !== MACHINE_ID_BYTES ? null : toHex(raw)
}
