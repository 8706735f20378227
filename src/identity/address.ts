import { BlockList, isIPv4, isIPv6 } from 'node:net'

const HOST_NAME = /^(?=.{1,253}$)[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62})(?:\.[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,62}))*$/
const PEER_ID = /^[1-9A-HJ-NP-Za-km-z]{46,64}$/

const isPort = (text: string): boolean => /^[1-9][0-9]{0,4}$/.test(text) && Number(text) <= 65_535
const isHostName = (text: string): boolean => HOST_NAME.test(text)

/** Hosts that the mesh can dial, by multiaddr protocol, each with its check. */
export const HOSTS: Readonly<Record<string, (value: string) => boolean>> = {
  ip4: isIPv4,
  ip6: (value) => isIPv6(value) && !value.includes('%'),
  dns: isHostName,
  dns4: isHostName,
  dns6: isHostName,
}

/**
 * Why an address of this peer is invalid, or null. Valid forms are `/ip4|ip6|dns|dns4|dns6/HOST/tcp/PORT/p2p/PEER`, and the same for a
 * relay followed by `/p2p-circuit/p2p/PEER`. It must end in the peer itself, so that a card cannot send its importers to another machine.
 */
export const addressProblem = (address: string, peerId: string): string | null => {
  const [empty, host = '', value = '', tcp, port = '', ...path] = address.split('/')
  if (host === 'ip6zone' || value.includes('%')) return 'is link-local: use an address that works on other links'
  if (empty !== '' || !Object.hasOwn(HOSTS, host) || !HOSTS[host]!(value)) return 'does not begin with an IP address or a DNS name'
  if (tcp !== 'tcp' || !isPort(port)) return 'has no TCP port'
  const relayed = path.length === 5
  if (relayed && !(path[0] === 'p2p' && PEER_ID.test(path[1]!) && path[2] === 'p2p-circuit')) return 'has more in it than a relay'
  const [p2p, target] = path.slice(relayed ? 3 : 0)
  if (path.length !== (relayed ? 5 : 2) || p2p !== 'p2p' || target !== peerId) return `does not end in /p2p/${peerId}`
  return null
}

/** Addresses that no machine can have for another one, with the reason. */
const NEVER_REACHED = (
  [
    ['fe80::', 10, 'ipv6', 'is a link-local address without a zone: use an address that is valid beyond one link'],
    ['ff00::', 8, 'ipv6', 'is a multicast address: use the address of one machine'],
    ['::', 128, 'ipv6', 'is the unspecified address: use the address of one machine'],
    ['0.0.0.0', 8, 'ipv4', 'is the unspecified address: use the address of one machine'],
    ['224.0.0.0', 4, 'ipv4', 'is a multicast address: use the address of one machine'],
    ['255.255.255.255', 32, 'ipv4', 'is the broadcast address: use the address of one machine'],
  ] as const
).map(([net, prefix, family, problem]) => {
  const hosts = new BlockList()
  hosts.addSubnet(net, prefix, family)
  return { hosts, problem }
})

/** Why an address can never be dialled, or null. A card may contain such an address among good ones. */
export const dialProblem = (address: string): string | null => {
  const [, kind = '', host = '', , port = '', ...path] = address.split('/')
  if (path[2] === 'p2p-circuit' && path[1] === path[4]) return 'uses the machine as its own relay: use the address of the machine'
  if (Number(port) === 0) return 'has port 0: use the port that the machine listens on'
  const family = kind === 'ip6' ? 'ipv6' : 'ipv4'
  if (kind.startsWith('dns')) return null
  return NEVER_REACHED.find(({ hosts }) => hosts.check(host, family))?.problem ?? null
}

/** The addresses of a card or invitation that can be dialled. If there are addresses, but all are unusable, throws `bad` of the reason. */
export const dialable = (addresses: readonly string[], bad: (problem: string) => Error): string[] => {
  const usable = addresses.filter((address) => dialProblem(address) === null)
  const [first] = addresses
  if (usable.length === 0 && first !== undefined) throw bad(`the address ${JSON.stringify(first)} ${dialProblem(first)}`)
  return usable
}

/** Whether an address means the machine itself. */
export const isLoopbackText = (text: string): boolean => text.startsWith('/ip4/127.') || text.startsWith('/ip6/::1/')

/** Networks whose addresses are not globally unique. They are private, link-local, carrier-grade NAT, multicast, and IPv4-mapped. */
const NOT_PUBLIC = {
  ipv4: [
    ['0.0.0.0', 8],
    ['10.0.0.0', 8],
    ['100.64.0.0', 10],
    ['127.0.0.0', 8],
    ['169.254.0.0', 16],
    ['172.16.0.0', 12],
    ['192.168.0.0', 16],
    ['224.0.0.0', 3],
  ],
  ipv6: [
    ['::', 127],
    ['fc00::', 7],
    ['fe80::', 10],
    ['ff00::', 8],
    ['::ffff:0:0', 96],
  ],
} as const

type Family = keyof typeof NOT_PUBLIC
/** One list per family, because Node.js treats every IPv4 address as an IPv4-mapped one too. */
const notPublic = (family: Family): BlockList => {
  const networks = new BlockList()
  for (const [network, prefix] of NOT_PUBLIC[family]) networks.addSubnet(network, prefix, family)
  return networks
}
let networks: Readonly<Record<Family, BlockList>> | null = null

/** Whether an address means the same host everywhere. */
export const isPublicText = (text: string): boolean => {
  const [, protocol, value = ''] = text.split('/')
  networks ??= { ipv4: notPublic('ipv4'), ipv6: notPublic('ipv6') }
  if (protocol === 'ip4') return !networks.ipv4.check(value, 'ipv4')
  return protocol === 'ip6' ? !networks.ipv6.check(value, 'ipv6') : true
}
