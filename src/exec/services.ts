import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import type { ExecutorClient } from '../executor-api/client.ts'
import type { LifecycleLog } from '../protocol/events/event-log.ts'
import type { RequesterCounters } from './counters.ts'
import type { RunTraces } from './run-traces.ts'
import type { ChannelSource } from './transport.ts'

/** Services that the classes of this folder share. Each class takes a `Pick` of it. */
export interface NetworkServices {
  readonly clock: Clock
  readonly counters: RequesterCounters
  readonly executor: ExecutorClient
  /** Receives the events of each run that this daemon requests. */
  readonly lifecycle: Pick<LifecycleLog, 'add'>
  /** Opens channels to other agents, or null without a mesh, so that only this daemon's own agent can be a target. */
  readonly links: ChannelSource | null
  readonly log: Logger
  /** Traces of runs, or null if tracing is off. */
  readonly traces: RunTraces | null
}
