import type { ConnectionGater } from '@libp2p/interface'

import type { MachineId } from '../protocol/ids.ts'
import { MAX_STRANGER_CONNECTIONS } from '../protocol/limits.ts'
import { hostOf } from './addresses.ts'
import { machineIdOf } from './peer-ids.ts'

/** What the gate must know of the mesh. */
export interface GateView {
  isKnown(machineId: MachineId): boolean
  strangerConnections(): number
  /** Too many offences of late, of this machine or of strangers from this host. */
  isRefused(machineId: MachineId, host: string): boolean
}

/**
 * Who may stay once Noise has proven the machine: Ed25519 machines only, none that is
 * refused for its offences, and strangers only while they leave room for those we know. Dialling is free, loopback included: a card may name any address.
 */
export const connectionGate = (view: GateView): ConnectionGater => ({
  denyDialMultiaddr: () => false,
  denyInboundEncryptedConnection: (peer, { remoteAddr }) => {
    const machineId = machineIdOf(peer)
    if (machineId === null || view.isRefused(machineId, hostOf(remoteAddr))) return true
    return !view.isKnown(machineId) && view.strangerConnections() >= MAX_STRANGER_CONNECTIONS
  },
})
