import type { Clock } from '../../base/clock.ts'
import type { Logger } from '../../base/log.ts'
import type { RunOutcome, RunSession, RunSink, RunSpec } from '../../exec/run-spec.ts'
import type { ExecutorClient } from '../../executor/port/client.ts'
import type { MeshNode } from '../../mesh/node.ts'
import type { MeshView } from '../../mesh/view.ts'
import type { AgentId, MachineId, RequestId } from '../../protocol/ids.ts'
import type { TrustDecision } from '../../protocol/reasons.ts'

/** Of `ExecRunner`. */
export interface RestRunner {
  run(spec: RunSpec, sink: RunSink, signal?: AbortSignal): Promise<RunOutcome>
  cancel(requestId: RequestId): void
  sessions(): RunSession[]
  diagnostics(): Record<string, number>
}

/** Of `AgentDirectory`. */
export interface RestDirectory {
  resolve(agent: string): AgentId
}

/** Of `ExecutorClient`. */
export type RestExecutor = Pick<ExecutorClient, 'identity' | 'query' | 'operate' | 'signCard'>

/** Of `Links`. */
export interface RestLinks {
  link(agentId: AgentId, signal?: AbortSignal): Promise<{ agentId: AgentId; machineId: MachineId; decision: TrustDecision }>
}

/** Of `MeshNode`. */
export type RestNode = Pick<MeshNode, 'addresses' | 'listening'>
/** Of `MeshView`. */
export type RestView = Pick<MeshView, 'peers' | 'diagnostics'>

/** One generic direct message, or the end of a listener that was too slow. */
export interface DirectEvent {
  readonly type: string
}

/** Of `DirectMessages`. */
export interface RestMessages {
  send(agentId: AgentId, message: { content_type: string; payload: Uint8Array }, signal?: AbortSignal): Promise<{ outcome: string }>
  listen(signal: AbortSignal): AsyncIterable<DirectEvent>
}

export interface RestComponents {
  readonly runner: RestRunner
  readonly directory: RestDirectory
  readonly executor: RestExecutor
  readonly links: RestLinks
  readonly node: RestNode
  readonly view: RestView
  readonly messages: RestMessages
  /** Counters of links and messages. */
  readonly dm: { diagnostics(): object }
  readonly clock: Clock
  readonly log: Logger
}

export interface RestInit {
  /** A loopback address; anything else is refused. Default 127.0.0.1. */
  readonly host?: string
  /** 0 = any free one, then read `port`. */
  readonly port: number
  /** Path of the unix socket, in a directory that only its users may enter. */
  readonly socketPath: string
  /** 0660 for a system daemon that is used by its group. Default 0600. */
  readonly socketMode?: number
  /** The bearer token: content of `api-token`. */
  readonly token: string
  /** The name on our card. */
  readonly displayName: string
  /** Of the program. */
  readonly version: string
}
