import { createPrivateKey, createPublicKey, sign } from 'node:crypto'
import { join } from 'node:path'
import { type MachineId, fromHex, toHex } from '../protocol/ids.ts'
import { MACHINE_ID_BYTES } from '../protocol/limits/wire.ts'
import { type SeedFile, loadGivenOrCreateSeed, loadSeed } from './key-file.ts'
import { statement } from './signing.ts'

/** The machine's Ed25519 key (RFC 8032). It is libp2p's identity, and the machine's part of a link's signatures. */
export interface MachineKey {
  /** The public key as hex. */
  readonly machineId: MachineId
  /** 32 bytes for libp2p, which uses them in the Noise handshake. */
  readonly seed: Uint8Array
  /** The signature of `statement(domain, body)`. It takes about 30 µs. */
  sign(domain: string, body: Uint8Array): Uint8Array
}

/** PKCS #8 of Ed25519 (RFC 8410) before the 32 bytes of the seed. Its public counterpart is 12 bytes longer than the key. */
const ED25519_PKCS8 = fromHex('302e020100300506032b657004220420')
const ED25519_SPKI_HEAD = 12

export const machineKeyOf = (seed: Uint8Array): MachineKey => {
  const secret = createPrivateKey({ key: Buffer.concat([ED25519_PKCS8, seed]), format: 'der', type: 'pkcs8' })
  const publicKey = createPublicKey(secret).export({ format: 'der', type: 'spki' }).subarray(ED25519_SPKI_HEAD)
  return { machineId: toHex(publicKey), seed, sign: (domain, body) => sign(null, statement(domain, body), secret) }
}

const machineFile = (dataDir: string): SeedFile => ({ path: join(dataDir, 'machine.key'), header: 'x0x-machine-key-v1' })

/** The machine of a data directory, from `machine.key`, which is created on first start. Throws as `loadOrCreateAgentKey`. */
export const loadOrCreateMachineKey = async (dataDir: string, dirMode?: number, credentials: string | null = null): Promise<MachineKey> =>
  machineKeyOf(await loadGivenOrCreateSeed(machineFile(dataDir), credentials, dirMode))

/** The ID of an existing `machine.key`. Throws `not_found` if absent. */
export const machineIdOfKeyFile = async (dataDir: string): Promise<MachineId> =>
  machineKeyOf(await loadSeed(machineFile(dataDir))).machineId

const BASE58 = '123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz'
/** Start of an identity multihash with a libp2p PublicKey message of 32 Ed25519 bytes (libp2p peer-id specification). */
const ED25519_PREFIX = '002408011220'

/** libp2p's text for a machine, such as `12D3KooW…`. It is the public key in base58. */
export const peerIdOf = (machineId: MachineId): string => {
  fromHex(machineId)
  let rest = BigInt(`0x${ED25519_PREFIX}${machineId}`)
  let text = ''
  for (; rest > 0n; rest /= 58n) text = BASE58[Number(rest % 58n)]! + text
  // The prefix begins with exactly one zero byte, which base58 writes as one '1'.
  return `1${text}`
}

/** The machine with this `peerIdOf`, or null if the text is not of an Ed25519 key. */
export const machineIdOfText = (text: string): MachineId | null => {
  if (!/^1[1-9A-HJ-NP-Za-km-z]{51}$/.test(text)) return null
  const number = [...text].reduce((sum, digit) => sum * 58n + BigInt(BASE58.indexOf(digit)), 0n)
  const hex = number.toString(16).padStart(ED25519_PREFIX.length + 2 * MACHINE_ID_BYTES, '0')
  return hex.startsWith(ED25519_PREFIX) ? hex.slice(ED25519_PREFIX.length) : null
}
