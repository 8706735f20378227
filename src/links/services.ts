import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { MachineKey } from '../identity/machine-key.ts'
import type { Primitives } from '../identity/primitives-interface.ts'
import type { AddressBook } from '../mesh/address-book.ts'
import type { AgentRecords } from '../mesh/agent-records.ts'
import type { MeshNode } from '../mesh/node.ts'
import type { PeerClasses } from '../mesh/peer-classes.ts'
import type { DmCounters } from './counters.ts'
import type { Dispatcher } from './dispatcher.ts'
import type { LinkExecutor } from './link.ts'

/** Services that the classes of this folder share. Each class takes a `Pick` of it. */
export interface LinkServices {
  readonly book: AddressBook
  readonly clock: Clock
  readonly counters: DmCounters
  /** Receives each body on a channel that a peer opened. */
  readonly dispatcher: Dispatcher
  readonly log: Logger
  readonly machineKey: MachineKey
  readonly node: MeshNode
  /** The executor, which signs and verifies handshakes and decides about trust. */
  readonly executor: LinkExecutor
  readonly primitives: Primitives
  /** Searches the DHT for an agent that no nearby machine knows. */
  readonly records: Pick<AgentRecords, 'find'>
  /** Class of a machine by contacts, ACL and bootstrap list. */
  readonly peerClasses: Pick<PeerClasses, 'of'>
}
