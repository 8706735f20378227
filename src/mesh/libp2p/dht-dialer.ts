import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'

/** Makes all dials of kad-dht, which would otherwise dial without limits. */
export interface DhtDialer {
  /** A server has named the addresses of a machine. */
  named(machineId: MachineId, addresses: readonly string[], server: MachineId): void
  /** Connects to a machine. `own` are the addresses that it gave itself. Throws if it may not be dialled or does not answer. */
  reach(machineId: MachineId, own: readonly string[], signal: AbortSignal): Promise<void>
  /** A DHT server has connected. */
  met(machineId: MachineId): void
}

/** For a DHT that only uses existing connections. */
export const NO_DHT_DIALS: DhtDialer = {
  named: () => undefined,
  reach: async () => Promise.reject(new AppError('conflict', 'the DHT may not dial')),
  met: () => undefined,
}
