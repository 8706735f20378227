import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { AddressBook } from './address-book.ts'
import type { RecordValidator } from './dht-record.ts'
import type { KnownAgents } from './known-agents.ts'
import type { MeshNode } from './node.ts'
import type { PeerClasses } from './peer-classes.ts'
import type { Presences } from './presences.ts'
import type { SelfCard } from './self-card.ts'

/** Services that the classes of this folder share. Each class takes a `Pick` of it. */
export interface MeshServices {
  readonly book: AddressBook
  readonly clock: Clock
  readonly validator: RecordValidator
  readonly knownAgents: KnownAgents
  readonly log: Logger
  readonly node: MeshNode
  /** The card of this agent that other daemons get. */
  readonly selfCard: Pick<SelfCard, 'current'>
  /** The executor, for the identity of this agent, and the snapshot of contacts and ACL. */
  readonly executor: Pick<ExecutorClient, 'identity' | 'onSnapshot' | 'snapshot'>
  readonly presences: Presences
  readonly peerClasses: PeerClasses
}
