import type { PeerId } from '@libp2p/interface'
import type { Multiaddr } from '@multiformats/multiaddr'

import { networkOf } from '../base/ip-network.ts'
import { addressProblem } from '../identity/address.ts'
import { peerIdOf } from '../identity/peer-id.ts'
import type { MachineId } from '../protocol/ids.ts'
import { MAX_ADDRESS_TEXT } from '../protocol/limits.ts'
import { machineIdOfText } from './peer-ids.ts'

/** An address we can dial: a host, a TCP port and the machine that must answer there. */
export interface PeerAddress {
  readonly text: string
  readonly machineId: MachineId
}

/** Null for anything but `/ip4|ip6|dns…/HOST/tcp/PORT/p2p/PEER` of an Ed25519 peer. */
export const parseAddress = (text: string): PeerAddress | null => {
  if (text.length > MAX_ADDRESS_TEXT || text.includes('/p2p-circuit/')) return null
  const machineId = machineIdOfText(text.slice(text.lastIndexOf('/') + 1))
  return machineId === null || addressProblem(text, peerIdOf(machineId)) !== null ? null : { text, machineId }
}

/** The addresses at which mDNS found a peer, each completed by the `/p2p/…` that must answer there. */
export const addressesTo = (peer: PeerId, addresses: readonly Multiaddr[]): string[] =>
  addresses.map(String).map((text) => (text.endsWith(`/p2p/${peer.toString()}`) ? text : `${text}/p2p/${peer.toString()}`))

/** The host of an address, as budgets count it: an IPv6 host by its /64. Null for a DNS name. */
export const hostOfText = (text: string): string | null => {
  const [, protocol, value = ''] = text.split('/')
  if (protocol === 'ip4') return value
  return protocol === 'ip6' ? networkOf(value) : null
}

/** The same of a connection's remote address. */
export const hostOf = (address: Multiaddr): string => hostOfText(address.toString()) ?? address.toString()

const isLoopback = (text: string): boolean => text.startsWith('/ip4/127.') || text.startsWith('/ip6/::1/')

/** What we tell others: loopback only when there is nothing else, since elsewhere it is another machine. */
export const announceable = (addresses: readonly string[]): string[] => {
  const outside = addresses.filter((address) => !isLoopback(address))
  return outside.length > 0 ? outside : [...addresses]
}
