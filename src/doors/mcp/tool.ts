import type { ToolAnnotations } from '@modelcontextprotocol/server'
import type * as z from 'zod'
import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import type { LocalExecutor } from '../../executor-api/local.ts'
import type { ExecutorSessions } from '../executor-sessions.ts'
import { nullIsAbsent } from '../null-is-absent.ts'
import type { ToolFleets } from '../tools/tool-fleet.ts'
import type { ToolAnswer } from '../tools/tool-result.ts'
import type { ToolRuns } from '../tools/tool-runs.ts'
import { checkWith } from '../validation.ts'

export interface ToolContext {
  readonly executor: Pick<LocalExecutor, 'file' | 'lookUp' | 'reach' | 'rules' | 'select'>
  readonly runs: ToolRuns
  readonly fleets: ToolFleets
  readonly sessions: ExecutorSessions
  readonly clock: Clock
  /** Time within which a call is answered. */
  readonly answerWithinMs: number
  /** True if the client disconnected without cancelling its calls. */
  isGone(): boolean
}

export interface ToolCall {
  /** Aborts when the client cancels the call or is gone. */
  readonly signal: AbortSignal
  /** Reports progress to a client that asked for it. */
  progress(elapsedMs: number, message: string): void
}

/** Makes the answer when the client is ready to read it, so that waiting calls hold no answers. */
export type DeferredAnswer = () => ToolAnswer | Promise<ToolAnswer>

export interface ToolSpec<I> {
  readonly name: string
  readonly title: string
  readonly description: string
  /** One line for the server's instructions, which list the tools by priority. Null means the tool is not listed. */
  readonly use: string | null
  readonly input: z.ZodObject & z.ZodType<I>
  readonly output: z.ZodObject
  readonly annotations: ToolAnnotations
  /** Settles when there is something to answer. This call and the returned function may throw an `AppError`, which the client sees. */
  call(input: I, context: ToolContext, call: ToolCall): Promise<DeferredAnswer>
}

/** A tool that checks its own input. */
export interface McpTool extends Omit<ToolSpec<unknown>, 'call' | 'input'> {
  readonly input: z.ZodObject
  /** Throws `bad_request`, which names each wrong argument and the expected value. */
  call(input: unknown, context: ToolContext, call: ToolCall): Promise<DeferredAnswer>
}

/** Name of an argument whose text is not valid Unicode, because programs would get another text, or undefined if absent. */
const illFormed = (input: object): string | undefined =>
  Object.entries(input).find(([, value]) => [value].flat().some((one) => typeof one === 'string' && !one.isWellFormed()))?.[0]

export const tool = <I extends object>(spec: ToolSpec<I>): McpTool => {
  const schema = nullIsAbsent(spec.input)
  return {
    ...spec,
    input: schema,
    call: async (input, context, call) => {
      const checked = checkWith<I>(schema, input)
      if ('error' in checked) throw checked.error
      const field = illFormed(checked.value)
      if (field !== undefined) throw new AppError('bad_request', `${field}: not valid Unicode`)
      return spec.call(checked.value, context, call)
    },
  }
}
