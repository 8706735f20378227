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

/** What tools work with. */
export interface ToolContext {
  readonly executor: Pick<LocalExecutor, 'file' | 'lookUp' | 'reach' | 'rules' | 'select'>
  readonly runs: ToolRuns
  readonly fleets: ToolFleets
  readonly sessions: ExecutorSessions
  readonly clock: Clock
  /** A call is answered by then. */
  readonly answerWithinMs: number
  /** The caller is gone, and has cancelled nothing. */
  isGone(): boolean
}

/** One call of a tool, as its caller may still influence it and hear of it. */
export interface ToolCall {
  /** Aborted when the caller cancels it, or is gone. */
  readonly signal: AbortSignal
  /** Tells a caller that wants to hear it how far it is; does nothing for others. */
  progress(elapsedMs: number, message: string): void
}

/** Makes an answer, once its reader takes what there is: many that wait hold no answer. */
export type DeferredAnswer = () => ToolAnswer | Promise<ToolAnswer>

/** A tool: all that is told of it, and what it does. */
export interface ToolSpec<I> {
  readonly name: string
  readonly title: string
  readonly description: string
  /** One line for the server's instructions, which list the tools in the order of choice; null: it is no choice of its own. */
  readonly use: string | null
  readonly input: z.ZodObject & z.ZodType<I>
  readonly output: z.ZodObject
  readonly annotations: ToolAnnotations
  /** Settles when there is something to answer. It, and the answer, may throw an `AppError`, which the caller is told. */
  call(input: I, context: ToolContext, call: ToolCall): Promise<DeferredAnswer>
}

/** A tool whose input is its own affair: what comes is checked by it. */
export interface McpTool extends Omit<ToolSpec<unknown>, 'call' | 'input'> {
  readonly input: z.ZodObject
  /** Throws `bad_request`, which names each argument that is none and what belongs there. */
  call(input: unknown, context: ToolContext, call: ToolCall): Promise<DeferredAnswer>
}

/** An argument with a text that is no Unicode: whatever it is given to would get another one. Undefined: there is none. */
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
