import { publicKeyFromRaw } from '@libp2p/crypto/keys'
import type { PeerId } from '@libp2p/interface'
import { peerIdFromPublicKey, peerIdFromString } from '@libp2p/peer-id'

import { AppError } from '../base/errors.ts'
import { fromHex, isHexId, toHex, type MachineId } from '../protocol/ids.ts'
import { MACHINE_ID_BYTES } from '../protocol/limits.ts'

/** The libp2p peer id of a machine: its Ed25519 key inline, so neither needs a look-up for the other. */
export const peerIdOf = (machineId: MachineId): PeerId => {
  if (!isHexId(machineId)) throw new AppError('bad_request', 'a machine id is 64 lower-case hex characters')
  return peerIdFromPublicKey(publicKeyFromRaw(fromHex(machineId)))
}

/** The text form of `peerIdOf`, as it ends a multiaddr. */
export const peerIdText = (machineId: MachineId): string => peerIdOf(machineId).toString()

/** Null when the peer's key is not an Ed25519 key: such a peer has no MachineId. */
export const machineIdOf = (peer: PeerId): MachineId | null => {
  const raw = peer.type === 'Ed25519' ? peer.publicKey.raw : null
  return raw === null || raw.length !== MACHINE_ID_BYTES ? null : toHex(raw)
}

/** As `machineIdOf`, from the text behind `/p2p/`. */
export const machineIdOfText = (text: string): MachineId | null => {
  try {
    return machineIdOf(peerIdFromString(text))
  } catch {
    return null
  }
}
