import { type CallToolResult, McpServer, type RegisteredTool, type ServerContext } from '@modelcontextprotocol/server'
import { isAppError } from '../../base/errors.ts'
import { VERSION } from '../../base/version.ts'
import { shown } from '../../base/visible-text.ts'
import { shownNext } from '../tools/run-end.ts'
import type { ToolAnswer } from '../tools/tool-result.ts'
import { framed } from '../tools/untrusted-frame.ts'
import type { RuleTools } from './rule-tools.ts'
import type { Tool, ToolCall, ToolContext } from './tool.ts'

export interface McpServerComponents extends ToolContext {
  /** Offers what became of runs. */
  events(server: McpServer): void
  /** Does the work on this request, which counts until then. Throws `bad_request` where it was cancelled before. */
  working<T>(id: string | number, work: () => Promise<T>): Promise<T>
  /** Resolves when an answer to this request may be made: its reader takes what there is. */
  answering(id: string | number, signal: AbortSignal): Promise<void>
}

/** Only questions to the client's user have schemas that come from outside, and we ask none. */
export const NO_VALIDATOR = {
  getValidator: () => () => {
    throw new Error('a schema that came from outside is not evaluated')
  },
}

export const callOf = ({ mcpReq }: ServerContext): ToolCall => {
  const progressToken = mcpReq._meta?.progressToken
  let told = -1
  return {
    signal: mcpReq.signal,
    progress: (elapsedMs, message) => {
      // Each must be above the one before (Model Context Protocol, progress).
      told = Math.max(Math.round(elapsedMs), told + 1)
      if (progressToken === undefined) return
      // Who is gone is told nothing; the transport knows of it.
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
 * A call that makes no sense, or is one too many, with what to do next. As text alone: clients hold structured content against the
 * schema of the tool, also that of an error. Anything else is a mistake of ours, which the library answers.
 */
export const refusalOf = (error: unknown): CallToolResult => {
  if (!isAppError(error)) throw error
  const { next } = shownNext(error)
  const text = [`${error.code}: ${shown(error.message)}`, next ?? []].flat().join('\n')
  return { content: [{ type: 'text', text }], isError: true }
}

/** As schemas are told to clients; what comes is checked by the tool itself, which says more of what is wrong. */
export const unchecked = (input: Tool['input']) => {
  const standard = input['~standard']
  return { '~standard': { ...standard, validate: (value: unknown) => ({ value }) } }
}

const register = (server: McpServer, tool: Tool, components: McpServerComponents): RegisteredTool => {
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

/** What a server offers. */
export interface McpOffer {
  readonly tools: readonly Tool[]
  /** Tools that come and go; null: there are none. */
  readonly source: Pick<RuleTools, 'tools' | 'onChanged'> | null
  /** What a model is told of all of them together. */
  readonly instructions: string
}

/** Offers what a source has, and what it has later: a process has few servers, and they live as long as it does. */
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

/** A server of the Model Context Protocol. */
export const mcpServer = (components: McpServerComponents, { tools, source, instructions }: McpOffer): McpServer => {
  const about = { name: 'x0x', title: 'x0x', version: VERSION }
  const server = new McpServer(about, {
    instructions,
    capabilities: {
      tools: { listChanged: source !== null },
      resources: { subscribe: true, listChanged: false },
    },
    jsonSchemaValidator: NO_VALIDATOR,
    // Tools come and go together, and a client is told once.
    debouncedNotificationMethods: [LIST_CHANGED],
  })
  for (const tool of tools) register(server, tool, components)
  if (source !== null) follow(server, source, components)
  components.events(server)
  return server
}
