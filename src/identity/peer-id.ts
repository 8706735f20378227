import { type MachineId, fromHex } from '../protocol/ids.ts'
import { MACHINE_ID_BYTES } from '../protocol/limits.ts'

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

/** The machine whose `peerIdOf` the text is; null: it is that of no Ed25519 key. */
export const machineIdOfText = (text: string): MachineId | null => {
  if (!/^1[1-9A-HJ-NP-Za-km-z]{51}$/.test(text)) return null
  const number = [...text].reduce((sum, digit) => sum * 58n + BigInt(BASE58.indexOf(digit)), 0n)
  const hex = number.toString(16).padStart(ED25519_PREFIX.length + 2 * MACHINE_ID_BYTES, '0')
  return hex.startsWith(ED25519_PREFIX) ? hex.slice(ED25519_PREFIX.length) : null
}
