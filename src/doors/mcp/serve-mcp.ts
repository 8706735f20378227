import { serveStdio } from '@modelcontextprotocol/server/stdio'
import type { Readable, Writable } from 'node:stream'
import { aborted } from '../../base/abortable.ts'
import { type Clock, within } from '../../base/clock.ts'
import { errorText } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import type { LocalExecutor, SessionOpening } from '../../executor-api/local-executor.ts'
import type { LifecycleLog } from '../../protocol/lifecycle-log.ts'
import type { LifecycleFacts } from '../../protocol/lifecycle.ts'
import { LAST_ANSWERS_MS } from '../../protocol/tool-limits.ts'
import { ExecutorSessions } from '../executor-sessions.ts'
import type { RunRecorder } from '../tools/run-recorder.ts'
import { ToolFleets } from '../tools/tool-fleets.ts'
import { ToolRuns } from '../tools/tool-runs.ts'
import { EventResource } from './event-resource.ts'
import { LineTransport } from './line-transport.ts'
import { type McpOffer, mcpServer } from './mcp-server.ts'

/** Sessions of targets that are kept while nobody uses them. */
const MAX_IDLE_TARGETS = 4

export interface ServeMcpComponents {
  readonly input: Readable
  readonly output: Writable
  readonly executor: LocalExecutor
  readonly clock: Clock
  readonly log: Logger
  /** What becomes of this client's runs; others may add to it. */
  readonly told: LifecycleLog
}

export interface ServeMcpInit {
  /** Who asks: a label for the journal, which its client did not choose. */
  readonly caller: Pick<SessionOpening, 'door' | 'client_name' | 'available'>
  readonly answerWithinMs: number
  readonly offer: McpOffer
  /** Hears what happens to runs; null: nobody records them. */
  readonly recorder: RunRecorder | null
}

/**
 * The Model Context Protocol over a pair of byte streams. Resolves when the input has ended, everything that it started is over
 * and everything that it asked is answered; or at once when nobody reads the output any more, or at the signal.
 */
export const serveMcp = async (components: ServeMcpComponents, init: ServeMcpInit, signal: AbortSignal): Promise<void> => {
  const { executor, clock, log, told } = components
  const transport = new LineTransport(components)
  const opening = (target: string | null) => ({ ...init.caller, target, told: (facts: LifecycleFacts) => void told.add(facts) })
  const sessions = new ExecutorSessions({ executor }, { opening, maxIdle: MAX_IDLE_TARGETS })
  const ready = (one: AbortSignal): Promise<void> => transport.room(one)
  const runs = new ToolRuns({ executor, sessions, clock }, { caller: init.caller.client_name, ready, recorder: init.recorder })
  const fleets = new ToolFleets({ runs, clock })
  const { answerWithinMs, offer } = init
  const over = new AbortController()
  const events = new EventResource({ log: told, clock, room: ready, ended: over.signal })
  const context = {
    executor,
    runs,
    fleets,
    sessions,
    clock,
    answerWithinMs,
    isGone: () => transport.closed,
    answering: transport.answering.bind(transport),
    working: async <T>(id: string | number, work: () => Promise<T>): Promise<T> => transport.working(id, work),
  }
  const serve: Parameters<typeof serveStdio>[0] = ({ era }) =>
    mcpServer({ ...context, events: (server) => events.offer(server, era === 'modern') }, offer)
  const handle = serveStdio(serve, {
    transport,
    onerror: (error) => log.debug({ error: errorText(error) }, 'a message of the client came to nothing'),
  })
  try {
    await Promise.race([transport.ended, aborted(signal)])
  } finally {
    fleets.close()
    await runs.close()
    if (!signal.aborted) await Promise.race([within(clock, LAST_ANSWERS_MS, transport.settled()), aborted(signal)])
    over.abort()
    await handle.close()
  }
}
