import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { MachineKey } from '../identity/machine-key.ts'
import type { RecordJudge } from './dht-record.ts'
import type { DhtMode } from './hash-table.ts'

export interface MeshNodeComponents {
  readonly clock: Pick<Clock, 'monotonic'>
  readonly machineKey: MachineKey
  readonly log: Logger
  /** Of records of the hash table; without it there is none. */
  readonly judge?: RecordJudge
}

export interface MeshNodeInit {
  /** Multiaddrs to listen on, such as `/ip4/0.0.0.0/tcp/0`. */
  readonly listen: readonly string[]
  /** Addresses to tell others beside those we listen on, such as that of a port forward. */
  readonly announce?: readonly string[]
  /** Look for peers on the local network. */
  readonly mdns: boolean
  /** Whether machines may connect that nobody names; default true. */
  readonly strangers?: boolean
  /** Connections at once; default `MAX_CONNECTIONS`. */
  readonly connections?: number
  /** Whether we carry for our contacts; default false. */
  readonly relay?: boolean
  /** The part in the hash table; default off. */
  readonly dht?: DhtMode
}
