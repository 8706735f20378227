import { type CallToolResult, McpServer, type RegisteredTool, type ServerContext } from '@modelcontextprotocol/server'
import { serveStdio } from '@modelcontextprotocol/server/stdio'
import type { Readable, Writable } from 'node:stream'
import { aborted } from '../../base/abort.ts'
import { type Clock, within } from '../../base/clock.ts'
import { errorText, isAppError } from '../../base/errors.ts'
import type { Logger } from '../../base/log.ts'
import { VERSION } from '../../base/runtime.ts'
import { shown } from '../../base/visible-text.ts'
import type { LocalExecutor, SessionOpening } from '../../executor-api/local.ts'
import type { LifecycleLog } from '../../protocol/events/event-log.ts'
import type { LifecycleFacts } from '../../protocol/events/lifecycle.ts'
import { LAST_ANSWERS_MS } from '../../protocol/limits/tools.ts'
import { ExecutorSessions } from '../executor-sessions.ts'
import { shownNext } from '../tools/run-end.ts'
import type { ToolRunRecorder } from '../tools/tool-run-recorder.ts'
import { ToolFleets } from '../tools/tool-fleet.ts'
import type { ToolAnswer } from '../tools/tool-result.ts'
import { ToolRuns } from '../tools/tool-runs.ts'
import { framed } from '../tools/untrusted-frame.ts'
import { EventResource } from './event-resource.ts'
import { LineTransport } from './line-transport.ts'
import type { RuleTools } from './rule-tools.ts'
import type { McpTool, ToolCall, ToolContext } from './tool.ts'

export interface McpServerComponents extends ToolContext {
  /** Offers the events of runs as a resource. */
  events(server: McpServer): void
  /** See `LineTransport.working`. */
  working<T>(id: string | number, work: () => Promise<T>): Promise<T>
  /** See `LineTransport.answering`. */
  answering(id: string | number, signal: AbortSignal): Promise<void>
}

/** Only elicitation uses schemas of the client, and this server does not elicit. */
export const NO_VALIDATOR = {
  getValidator: () => () => {
    throw new Error('schemas from clients are not evaluated')
  },
}

export const callOf = ({ mcpReq }: ServerContext): ToolCall => {
  const progressToken = mcpReq._meta?.progressToken
  let told = -1
  return {
    signal: mcpReq.signal,
    progress: (elapsedMs, message) => {
      // Progress must increase (Model Context Protocol, progress).
      told = Math.max(Math.round(elapsedMs), told + 1)
      if (progressToken === undefined) return
      // The transport notices a client that is gone.
      mcpReq.notify({ method: 'notifications/progress', params: { progressToken, progress: told, message } }).catch(() => undefined)
    },
  }
}

const resultOf = ({ result, isError, foreign }: ToolAnswer): CallToolResult => ({
  content: [{ type: 'text', text: framed(JSON.stringify(result), foreign) }],
  structuredContent: { ...result },
  isError,
})

/**
 * The answer to an invalid call, or one too many, with what to do next. It is text only, because clients check structured content against
 * the tool's schema, also that of an error. Other errors are internal, and the library answers them.
 */
export const refusalOf = (error: unknown): CallToolResult => {
  if (!isAppError(error)) throw error
  const { next } = shownNext(error)
  const text = [`${error.code}: ${shown(error.message)}`, next ?? []].flat().join('\n')
  return { content: [{ type: 'text', text }], isError: true }
}

/** The published schema, without the library's check. The tool checks its input itself, with better messages. */
export const unchecked = (input: McpTool['input']) => {
  const standard = input['~standard']
  return { '~standard': { ...standard, validate: (value: unknown) => ({ value }) } }
}

const register = (server: McpServer, tool: McpTool, components: McpServerComponents): RegisteredTool => {
  const { name, title, description, input, output, annotations } = tool
  const config = { title, description, inputSchema: unchecked(input), outputSchema: output, annotations }
  return server.registerTool(name, config, async (given: unknown, context: ServerContext) => {
    const call = callOf(context)
    const { id } = context.mcpReq
    try {
      return await components.working(id, async () => {
        const answer = await tool.call(given, components, call)
        await components.answering(id, call.signal)
        return resultOf(await answer())
      })
    } catch (error) {
      return refusalOf(error)
    }
  })
}

/** Tools and instructions of a server for its client. */
export interface McpOffer {
  readonly tools: readonly McpTool[]
  /** Tools that can change, or null. */
  readonly source: Pick<RuleTools, 'tools' | 'onChanged'> | null
  /** Instructions for the model about all tools. */
  readonly instructions: string
}

/** Offers the current tools of a source and follows its changes. The listener stays, because servers live until the process ends. */
const follow = (server: McpServer, source: NonNullable<McpOffer['source']>, components: McpServerComponents): void => {
  let offered: RegisteredTool[] = []
  const update = (): void => {
    for (const one of offered) one.remove()
    offered = source.tools.map((tool) => register(server, tool, components))
  }
  update()
  source.onChanged(update)
}

const LIST_CHANGED = 'notifications/tools/list_changed'

export const mcpServer = (components: McpServerComponents, { tools, source, instructions }: McpOffer): McpServer => {
  const about = { name: 'x0x', title: 'x0x', version: VERSION }
  const server = new McpServer(about, {
    instructions,
    capabilities: {
      tools: { listChanged: source !== null },
      resources: { subscribe: true, listChanged: false },
    },
    jsonSchemaValidator: NO_VALIDATOR,
    // Tools change together, and the client is notified once.
    debouncedNotificationMethods: [LIST_CHANGED],
  })
  for (const tool of tools) register(server, tool, components)
  if (source !== null) follow(server, source, components)
  components.events(server)
  return server
}

/** Maximum number of idle sessions of targets. */
const MAX_IDLE_TARGETS = 4

export interface ServeMcpComponents {
  readonly input: Readable
  readonly output: Writable
  readonly executor: LocalExecutor
  readonly clock: Clock
  readonly log: Logger
  /** Events of this client's runs. */
  readonly told: LifecycleLog
}

export interface ServeMcpInit {
  /** Name and interface of the client for the audit log. The client does not choose them. */
  readonly caller: Pick<SessionOpening, 'door' | 'client_name' | 'available'>
  readonly answerWithinMs: number
  readonly offer: McpOffer
  /** Records runs. Null means they are not recorded. */
  readonly recorder: ToolRunRecorder | null
}

/**
 * Serves the Model Context Protocol over a pair of byte streams. Resolves when the input has ended, all runs are over and all calls
 * answered, or at once if the output is closed or the signal aborts.
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
    onerror: (error) => log.debug({ error: errorText(error) }, 'a message of the client could not be handled'),
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
