import type { ConnectionGater } from '@libp2p/interface'

import type { MachineId } from '../protocol/ids.ts'
import { MAX_STRANGER_CONNECTIONS } from '../protocol/limits.ts'
import { machineIdOf } from './peer-ids.ts'

/** What the gate must know of the mesh. */
export interface GateView {
  isKnown(machineId: MachineId): boolean
  strangerConnections(): number
}

/**
 * Who may stay once Noise has proven the machine: Ed25519 machines only, and strangers only while they
 * leave room for those we know. Dialling is free, loopback included: a card may name any address.
 */
export const connectionGate = (view: GateView): ConnectionGater => ({
  denyDialMultiaddr: () => false,
  denyInboundEncryptedConnection: (peer) => {
    const machineId = machineIdOf(peer)
    return machineId === null || (!view.isKnown(machineId) && view.strangerConnections() >= MAX_STRANGER_CONNECTIONS)
  },
})
