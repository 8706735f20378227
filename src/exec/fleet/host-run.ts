import { newRequestId } from '../../identity/request-id.ts'
import type { AgentId, RequestId } from '../../protocol/ids.ts'
import type { ExecClient } from '../client.ts'
import { type RunEvent, type RunSpec, bufferedStdin } from '../run-spec.ts'
import type { HostRun } from './fanout.ts'
import { type FanoutHost, hostCancelled, hostOfError, hostOfOutcome } from './host-end.ts'

/** What is to run on each host. */
export interface FanoutCommand extends Pick<RunSpec, 'argv' | 'timeout_ms' | 'cwd' | 'clamp' | 'session' | 'trace'> {
  /** One copy for all; null = /dev/null. */
  readonly stdin: { readonly bytes: Uint8Array; readonly pieces: readonly Uint8Array[] } | null
  /** Ids that its caller chose, by agent; the others are made. */
  readonly requestIds: ReadonlyMap<AgentId, RequestId>
}

/** Where hosts' events go; each promise is backpressure, for that host alone. */
export interface HostSink {
  /** Before its Request leaves: once it resolves, whoever reads has been told, whatever becomes of this process. */
  begun(host: FanoutHost, requestId: RequestId): void | Promise<void>
  event(host: FanoutHost, event: RunEvent): void | Promise<void>
}

export interface HostRunComponents {
  readonly runner: Pick<ExecClient, 'run' | 'cancel'>
  readonly sink: HostSink
}

export interface HostRunInit {
  readonly command: FanoutCommand
  readonly fanoutId: string
}

/** Asks one host of a fan-out. */
export const beginHost = ({ runner, sink }: HostRunComponents, { command, fanoutId }: HostRunInit, host: FanoutHost): HostRun => {
  const { requestIds, stdin, ...common } = command
  const chosen = requestIds.get(host.agent_id)
  const request_id = chosen ?? newRequestId()
  let cancelled = false
  let sent = false
  const spec: RunSpec = {
    ...common,
    agent_id: host.agent_id,
    request_id,
    stdin: stdin === null ? null : bufferedStdin(stdin.bytes, stdin.pieces),
    fanout: { id: fanoutId, host: host.host },
  }
  const run = async (): Promise<Awaited<HostRun['ended']>> => {
    try {
      await sink.begun(host, request_id)
      if (cancelled) return hostCancelled(host, request_id)
      const outcome = await runner.run(spec, { event: (event) => sink.event(host, event), sent: () => void (sent = true) })
      return hostOfOutcome(host, outcome, { argv: command.argv, weCancelled: cancelled, idIsChosen: chosen !== undefined })
    } catch (error) {
      return hostOfError(host, request_id, error, sent)
    }
  }
  const cancel = (): void => {
    cancelled = true
    try {
      runner.cancel(request_id)
    } catch {
      // It ended just now.
    }
  }
  return { ended: run(), cancel }
}
