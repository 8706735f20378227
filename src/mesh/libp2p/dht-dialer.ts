import { AppError } from '../../base/errors.ts'
import type { MachineId } from '../../protocol/ids.ts'

/** How the engine comes to machines, all that it would else dial past us. */
export interface DhtDialer {
  /** A server has said where a machine is. */
  named(machineId: MachineId, addresses: readonly string[], server: MachineId): void
  /** Connects to a machine that is at `own` by its own words. Throws where it may not be dialled, or does not answer. */
  reach(machineId: MachineId, own: readonly string[], signal: AbortSignal): Promise<void>
  /** A machine has connected that keeps records for others. */
  met(machineId: MachineId): void
}

/** For a table that asks only whom others have connected to. */
export const NO_DHT_DIALS: DhtDialer = {
  named: () => undefined,
  reach: async () => Promise.reject(new AppError('conflict', 'nobody is dialled for the hash table')),
  met: () => undefined,
}
