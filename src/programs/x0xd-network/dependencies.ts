import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { ApiSocket } from '../../doors/rest/components.ts'
import type { NetworkSettings } from '../../executor/port/messages.ts'
import type { MachineKey } from '../../identity/machine-key.ts'

/** What the network's half is made from; all of it comes from the executor. */
export interface NetworkDependencies {
  readonly settings: NetworkSettings
  readonly clock: Clock
  readonly log: Logger
  /** The machine's identity on the network. The agent's is the executor's alone. */
  readonly machineKey: MachineKey
  readonly apiSocket: ApiSocket
}
