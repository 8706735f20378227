import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { MachineKey } from '../identity/machine-key.ts'
import type { DaemonConfig } from './config.ts'

/** What both halves are made from. */
export interface Grounds {
  readonly config: DaemonConfig
  readonly clock: Clock
  readonly log: Logger
  /** The machine's identity on the network, which both halves speak for. The agent's is the executor's alone. */
  readonly machineKey: MachineKey
}
