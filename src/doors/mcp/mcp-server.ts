import { McpServer, type CallToolResult, type ServerContext } from '@modelcontextprotocol/server'

import { isAppError } from '../../base/errors.ts'
import { VERSION } from '../../base/version.ts'
import type { ToolAnswer } from '../tools/tool-result.ts'
import { framed } from '../tools/untrusted-frame.ts'
import type { Tool, ToolCall, ToolContext } from './tool.ts'
import { instructionsFor } from './tools.ts'

export interface McpServerComponents extends ToolContext {
  /** Resolves when an answer to this request may be made: its reader takes what there is. */
  answering(id: string | number, signal: AbortSignal): Promise<void>
}

/** Only questions to the client's user have schemas that come from outside, and we ask none. */
const NO_VALIDATOR = {
  getValidator: () => () => {
    throw new Error('a schema that came from outside is not evaluated')
  },
}

const callOf = ({ mcpReq }: ServerContext): ToolCall => {
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

/** A call that makes no sense, or is one too many. Anything else is a mistake of ours, which the library answers. */
const refusalOf = (error: unknown): CallToolResult => {
  if (!isAppError(error)) throw error
  return { content: [{ type: 'text', text: `${error.code}: ${error.message}` }], isError: true }
}

/** As schemas are told to clients; what comes is checked by the tool itself, which says more of what is wrong. */
const unchecked = (input: Tool['input']) => {
  const standard = input['~standard']
  return { '~standard': { ...standard, validate: (value: unknown) => ({ value }) } }
}

const register = (server: McpServer, tool: Tool, components: McpServerComponents): void => {
  const { name, title, description, input, output, annotations } = tool
  const config = { title, description, inputSchema: unchecked(input), outputSchema: output, annotations }
  server.registerTool(name, config, async (given: unknown, context: ServerContext) => {
    const call = callOf(context)
    try {
      const answer = await tool.call(given, components, call)
      await components.answering(context.mcpReq.id, call.signal)
      return resultOf(await answer())
    } catch (error) {
      return refusalOf(error)
    }
  })
}

/** A server of the Model Context Protocol with these tools. */
export const mcpServer = (components: McpServerComponents, tools: readonly Tool[]): McpServer => {
  const about = { name: 'x0x', title: 'x0x', version: VERSION }
  const server = new McpServer(about, {
    instructions: instructionsFor(tools),
    capabilities: { tools: { listChanged: false } },
    jsonSchemaValidator: NO_VALIDATOR,
  })
  for (const tool of tools) register(server, tool, components)
  return server
}
