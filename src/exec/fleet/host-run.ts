import { newRequestId } from '../../identity/request-id.ts'
import type { AgentId, RequestId } from '../../protocol/ids.ts'
import type { ExecClient } from '../client.ts'
import { type RunEvent, type RunSpec, bufferedStdin } from '../run-spec.ts'
import type { HostRun } from './fanout.ts'
import { type FanoutHost, hostCancelled, hostOfError, hostOfOutcome } from './host-end.ts'

export interface FanoutCommand extends Pick<RunSpec, 'argv' | 'timeout_ms' | 'cwd' | 'clamp' | 'session' | 'trace'> {
  /** Shared by all hosts. Null is /dev/null. */
  readonly stdin: { readonly bytes: Uint8Array; readonly pieces: readonly Uint8Array[] } | null
  /** Request IDs that the client chose, by agent. The others are generated. */
  readonly requestIds: ReadonlyMap<AgentId, RequestId>
}

/** Receives the events of hosts. A promise delays only its host. */
export interface HostSink {
  /** Called before the Request is sent. After it resolves, the reader has the line, even if this process crashes. */
  begun(host: FanoutHost, requestId: RequestId): void | Promise<void>
  event(host: FanoutHost, event: RunEvent): void | Promise<void>
}

export const startHost = (
  { runner, sink }: { readonly runner: Pick<ExecClient, 'run' | 'cancel'>; readonly sink: HostSink },
  { command, fanoutId }: { readonly command: FanoutCommand; readonly fanoutId: string },
  host: FanoutHost,
): HostRun => {
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
      const outcome = await runner.run(spec, {
        event: (event) => sink.event(host, event),
        sent: () => void (sent = true),
        notSent: () => void (sent = false),
      })
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
      // It has just ended.
    }
  }
  return { ended: run(), cancel }
}
