import type { PeerId } from '@libp2p/interface'
import { type MachineId, toHex } from '../protocol/ids.ts'
import { MACHINE_ID_BYTES } from '../protocol/limits.ts'

/** Null when the peer's key is not an Ed25519 key: such a peer has no MachineId. */
export const machineIdOf = (peer: PeerId): MachineId | null => {
  const raw = peer.type === 'Ed25519' ? peer.publicKey.raw : null
  return raw === null || raw.length !== MACHINE_ID_BYTES ? null : toHex(raw)
}
