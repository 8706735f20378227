import { createPrivateKey, createPublicKey, sign } from 'node:crypto'
import { join } from 'node:path'
import { type MachineId, fromHex, toHex } from '../protocol/ids.ts'
import { type SeedFile, loadGivenOrCreateSeed, loadSeed } from './key-file.ts'
import { statement } from './signing.ts'

/** The machine's Ed25519 key (RFC 8032): libp2p's identity, and the machine's half of a link's signatures. */
export interface MachineKey {
  /** The public key itself. */
  readonly machineId: MachineId
  /** 32 bytes, for libp2p, which does the Noise handshake with it. */
  readonly seed: Uint8Array
  /** The signature of `statement(domain, body)`; about 30 µs. */
  sign(domain: string, body: Uint8Array): Uint8Array
}

/** PKCS #8 of Ed25519 (RFC 8410) before the 32 bytes of the seed; its public counterpart is 12 bytes longer than the key. */
const ED25519_PKCS8 = fromHex('302e020100300506032b657004220420')
const ED25519_SPKI_HEAD = 12

/** The key of a 32-byte Ed25519 seed. */
export const machineKeyOf = (seed: Uint8Array): MachineKey => {
  const secret = createPrivateKey({ key: Buffer.concat([ED25519_PKCS8, seed]), format: 'der', type: 'pkcs8' })
  const publicKey = createPublicKey(secret).export({ format: 'der', type: 'spki' }).subarray(ED25519_SPKI_HEAD)
  return { machineId: toHex(publicKey), seed, sign: (domain, body) => sign(null, statement(domain, body), secret) }
}

const machineFile = (dataDir: string): SeedFile => ({ path: join(dataDir, 'machine.key'), header: 'x0x-machine-key-v1' })

/** The machine of a data directory, from `machine.key`, made on first start. Throws as `loadOrCreateAgentKey`. */
export const loadOrCreateMachineKey = async (dataDir: string, dirMode?: number, credentials: string | null = null): Promise<MachineKey> =>
  machineKeyOf(await loadGivenOrCreateSeed(machineFile(dataDir), credentials, dirMode))

/** The id alone, of an existing `machine.key`; `not_found` when there is none yet. */
export const machineIdOfKeyFile = async (dataDir: string): Promise<MachineId> =>
  machineKeyOf(await loadSeed(machineFile(dataDir))).machineId
