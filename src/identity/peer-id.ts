import { fromHex, type MachineId } from '../protocol/ids.ts'

const BASE58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'
/** An identity multihash of 36 bytes that holds a libp2p PublicKey message: Ed25519, 32 bytes (libp2p peer-id specification). */
const ED25519_PREFIX = '002408011220'

/** The text under which libp2p knows a machine: `12D3KooW…`, the public key in base58. Needs no look-up. */
export const peerIdOf = (machineId: MachineId): string => {
  fromHex(machineId)
  let rest = BigInt(`0x${ED25519_PREFIX}${machineId}`)
  let text = ''
  for (; rest > 0n; rest /= 58n) text = BASE58[Number(rest % 58n)]! + text
  // The prefix begins with exactly one zero byte, which base58 writes as one '1'.
  return `1${text}`
}
