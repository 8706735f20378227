import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { AgentDirectory } from '../../exec/agents.ts'
import type { ExecClient } from '../../exec/client.ts'
import type { DetachedRuns } from '../../exec/detached-runs.ts'
import type { Fanouts } from '../../exec/fleet/fanouts.ts'
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

export type RestRunner = Pick<ExecClient, 'run' | 'checkRoom' | 'cancel' | 'sessions' | 'output'> & { diagnostics(): object }
export type RestFanouts = Pick<Fanouts, 'run' | 'checkRoom' | 'cancel' | 'sessions' | 'stopAll'>
export type RestDetached = Pick<DetachedRuns, 'start' | 'list' | 'get' | 'refresh' | 'attach' | 'wait' | 'cancel' | 'forget'>
export type RestRules = Pick<RulesClient, 'ask'>
export type RestDirectory = Pick<AgentDirectory, 'resolve' | 'select'>
export type RestExecutor = Pick<
  ExecutorClient,
  'identity' | 'snapshot' | 'query' | 'evaluateTrust' | 'operate' | 'signCard' | 'httpRefused' | 'tokens' | 'onTokens'
>

/** Of `ExecutorLinks`. */
export interface RestLinks extends Pick<Links, 'list'> {
  link(agentId: AgentId, signal: AbortSignal): Promise<Pick<Link, 'agentId' | 'machineId' | 'decision'>>
}

export type RestNode = Pick<MeshNode, 'addresses' | 'listening'>
export type RestView = Pick<MeshView, 'counts' | 'peers'> & { diagnostics(): object }
export type RestMessages = Pick<Messages, 'send' | 'subscribe'>

export type RestPings = Pick<Pings, 'ping'>

/** Of the runs that this daemon asked for. */
export type RestEvents = Pick<LifecycleLog, 'id' | 'last' | 'readSince' | 'wait'>

export interface RestComponents {
  readonly runner: RestRunner
  readonly fanouts: RestFanouts
  /** Runs that outlive their caller. */
  readonly detached: RestDetached
  readonly rules: RestRules
  readonly events: RestEvents
  readonly directory: RestDirectory
  readonly executor: RestExecutor
  readonly links: RestLinks
  readonly node: RestNode
  readonly view: RestView
  readonly messages: RestMessages
  readonly pings: RestPings
  /** Of `DmCounters`. */
  readonly dmCounters: { snapshot(): object }
  readonly metrics: Pick<DaemonMetrics, 'text'>
  readonly clock: Clock
  readonly log: Logger
}

/** The unix socket: one that listens already, or the path of one to make for us alone, in a directory that only we may enter. */
export type ApiSocket = { readonly fd: number } | { readonly path: string }

export interface RestInit {
  /** A loopback address; anything else is refused. Default 127.0.0.1. */
  readonly host?: string
  /** 0 = any free one, then read `port`. */
  readonly port: number
  readonly socket: ApiSocket
  /** The bearer token: content of `api-token`, until the executor says another. */
  readonly token: string
  /** Opens `GET /metrics` as well, and nothing else; null: only the other does. */
  readonly metricsToken?: string | null
  /** The name on our card. */
  readonly displayName: string
  /** Of the program. */
  readonly version: string
}
