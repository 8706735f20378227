import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { AgentDirectory } from '../../exec/agents.ts'
import type { ExecClient } from '../../exec/client.ts'
import type { DetachedRuns } from '../../exec/detached-runs.ts'
import type { Fanouts } from '../../exec/fleet/fanouts.ts'
import type { FileClient } from '../../exec/files/file-client.ts'
import type { RulesClient } from '../../exec/rules-client.ts'
import type { ExecutorClient } from '../../executor-api/client.ts'
import type { Link } from '../../links/link.ts'
import type { Links } from '../../links/links.ts'
import type { Messages } from '../../links/messages.ts'
import type { Pings } from '../../links/pings.ts'
import type { MeshNode } from '../../mesh/node.ts'
import type { MeshView } from '../../mesh/view.ts'
import type { LifecycleLog } from '../../protocol/events/event-log.ts'
import type { AgentId } from '../../protocol/ids.ts'
import type { DaemonMetrics } from './metrics.ts'

/** Services that the parts of the REST server share. Each part takes a `Pick` of it. */
export interface RestServices {
  readonly clock: Clock
  readonly detached: Pick<DetachedRuns, 'start' | 'list' | 'get' | 'refresh' | 'attach' | 'wait' | 'cancel' | 'forget'>
  /** Finds agents by contact name, ID or node set. */
  readonly directory: Pick<AgentDirectory, 'resolve' | 'select'>
  /** Counters of links and direct messages. */
  readonly dmCounters: { snapshot(): object }
  /** Events of the runs that this daemon requested. */
  readonly events: Pick<LifecycleLog, 'id' | 'last' | 'readSince' | 'wait'>
  readonly executor: Pick<
    ExecutorClient,
    'identity' | 'isDraining' | 'snapshot' | 'query' | 'evaluateTrust' | 'operate' | 'signCard' | 'httpRefused' | 'tokens' | 'onTokens'
  >
  readonly fanouts: Pick<Fanouts, 'run' | 'checkRoom' | 'cancel' | 'sessions' | 'stopAll'>
  readonly files: Pick<FileClient, 'stat' | 'list' | 'digest' | 'received' | 'mkdir' | 'download' | 'upload' | 'append'>
  readonly links: Pick<Links, 'list'> & {
    /** The open link to an agent, or a new one. */
    link(agentId: AgentId, signal: AbortSignal): Promise<Pick<Link, 'agentId' | 'machineId' | 'decision'>>
  }
  readonly log: Logger
  readonly messages: Pick<Messages, 'send' | 'subscribe'>
  readonly metrics: Pick<DaemonMetrics, 'text'>
  readonly node: Pick<MeshNode, 'addresses' | 'listening'>
  readonly pings: Pick<Pings, 'ping'>
  readonly rules: Pick<RulesClient, 'ask'>
  /** Runs that end with the request that started them. */
  readonly runner: Pick<ExecClient, 'run' | 'checkRoom' | 'cancel' | 'sessions' | 'output'> & { diagnostics(): object }
  readonly view: Pick<MeshView, 'counts' | 'peers'> & { diagnostics(): object }
}

/** The Unix socket of the API, which is an inherited listening descriptor, or the path of a socket to create for this user alone. */
export type ApiSocket = { readonly fd: number } | { readonly path: string }

export interface RestInit {
  /** A loopback address, by default 127.0.0.1. Any other address is refused. */
  readonly host?: string
  /** 0 selects any free port. */
  readonly port: number
  readonly socket: ApiSocket
  /** The bearer token, until the executor announces another. */
  readonly token: string
  /** A second token, which opens `GET /metrics` alone, or null. */
  readonly metricsToken?: string | null
  /** Name on the card of this agent. */
  readonly displayName: string
  /** Version of x0x. */
  readonly version: string
}
