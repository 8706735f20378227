import * as z from 'zod'

import { AppError } from '../../base/errors.ts'
import { isTable } from '../../protocol/json-table.ts'
import { KEEPER_LATE_MS } from '../../protocol/tool-limits.ts'
import { checkWith } from '../check-with.ts'
import { EXEC_OPERATIONS, type ToolAnswer } from '../tools/tool-result.ts'
import { execKill, execList, execOutput, execWait } from './run-tools.ts'
import type { Answer, Tool, ToolCall, ToolContext } from './tool.ts'

/** A call of a tool of the keeper. */
export interface KeeperCall {
  readonly name: string
  readonly args: Readonly<Record<string, unknown>>
  /** Aborted when the call is not to be answered any more. */
  readonly signal: AbortSignal
  /** Asked at that moment: the keeper is not told that the call was cancelled. */
  isGone(): boolean
  progress(elapsedMs: number, message: string): void
}

/** Of `_meta` in a result: nothing was begun, and this keeper ends; another is to be asked. */
export const ASK_ANOTHER = 'x0x/ask-another'

/** A notification of the keeper: what became of a command that stays. */
export const KEPT_EVENT = 'notifications/x0x/event'

/** What the keeper has answered. */
export interface KeeperAnswer {
  /** A result of a tool, as the protocol has it. */
  readonly result: Readonly<Record<string, unknown>>
  /** To be called when no one needs it any more: the next answer is read then. */
  taken(): void
}

/** The process that holds commands which outlive their server. */
export interface Keeper {
  /** `starts`: one is started where none runs. Null: none runs. Throws why it cannot be asked. */
  call(call: KeeperCall, options: { readonly starts: boolean }): Promise<KeeperAnswer | null>
}

const STAY = z
  .boolean()
  .optional()
  .describe('true: the command goes on when this session ends; give it a timeout_seconds of its own. Not with target (default false)')

/** What a model is told of it. */
export const STAYING =
  'A command that is to go on when this session ends gets "stay": true, and a timeout_seconds of its own; exec_list has it in later sessions too.'

const LATE =
  'the keeper of what stays does not answer, and the command may have begun: ask again with the same idempotency_key, or have x0x mcp --end-kept end it'

const notGranted = (): AppError =>
  new AppError('unsupported_capability', 'stay: no command may outlive its session here; security.allow_detach = true grants it')

/** The keeper knows nothing of this server's time. */
const argsFor = (tool: Tool, given: Readonly<Record<string, unknown>>, { answerWithinMs }: ToolContext) => {
  const { answer_within_ms: asked } = given
  // A signal need not end a command: who sends one waits no longer than asked.
  if (!('answer_within_ms' in tool.input.shape) || (asked === undefined && 'signal' in given)) return given
  return { ...given, answer_within_ms: typeof asked === 'number' ? Math.min(asked, answerWithinMs) : (asked ?? answerWithinMs) }
}

/** Null: no keeper runs. */
const forward = async (
  keeper: Keeper,
  asked: Pick<KeeperCall, 'name' | 'args'>,
  { call, context, starts }: { readonly call: ToolCall; readonly context: ToolContext; readonly starts: boolean },
): Promise<KeeperAnswer | null> => {
  const { clock, answerWithinMs } = context
  // Nobody has cancelled the command of a call that is answered late.
  const late = new AbortController()
  const timer = clock.setTimeout(() => late.abort(new AppError('timeout', LATE)), answerWithinMs + KEEPER_LATE_MS)
  const signal = AbortSignal.any([call.signal, late.signal])
  const isGone = (): boolean => late.signal.aborted || context.isGone()
  try {
    return await keeper.call({ ...asked, signal, isGone, progress: (ms, text) => call.progress(ms, text) }, { starts })
  } finally {
    timer.cancel()
  }
}

const passed =
  ({ result, taken }: KeeperAnswer): Answer =>
  () => {
    taken()
    return { passed: result }
  }

/** A tool that begins a command. `keeper`: null where none may stay. */
const beginning = (tool: Tool, keeper: Keeper | null): Tool => {
  const input = keeper === null ? tool.input : tool.input.extend({ stay: STAY })
  const call: Tool['call'] = async (given, context, asked) => {
    if (!isTable(given) || !Object.hasOwn(given, 'stay')) return tool.call(given, context, asked)
    if (keeper === null) throw notGranted()
    const checked = checkWith(input, given)
    if ('error' in checked) throw checked.error
    const { stay, ...rest } = given
    if (stay !== true) return tool.call(rest, context, asked)
    const args = argsFor(tool, rest, context)
    const answer = await forward(keeper, { name: tool.name, args }, { call: asked, context, starts: true })
    if (answer === null) throw new AppError('internal', 'nothing keeps the command, although it was asked to')
    return passed(answer)
  }
  return { ...tool, input, call }
}

/** A tool that goes on with a run, which may be one of the keeper's. */
const goingOn = (tool: Tool, keeper: Keeper): Tool => ({
  ...tool,
  call: async (given, context, call) => {
    const id = isTable(given) ? given['run_id'] : undefined
    if (!isTable(given) || typeof id !== 'string' || context.runs.has(id)) return tool.call(given, context, call)
    const answer = await forward(keeper, { name: tool.name, args: argsFor(tool, given, context) }, { call, context, starts: false })
    return answer === null ? tool.call(given, context, call) : passed(answer)
  },
})

interface Listing {
  readonly runs: readonly object[]
  readonly not_listed: number
}

/** Our own runs, then the keeper's. */
const listing = (tool: Tool, keeper: Keeper): Tool => ({
  ...tool,
  call: async (given, context, call) => {
    const own = await tool.call(given, context, call)
    const answer = await forward(keeper, { name: tool.name, args: {} }, { call, context, starts: false })
    if (answer === null) return own
    answer.taken()
    const { structuredContent, isError } = answer.result
    if (isError === true) return () => ({ passed: answer.result })
    const kept = structuredContent as Listing
    return async () => {
      const { result, ...rest } = (await own()) as ToolAnswer
      const { runs, not_listed } = result as Listing
      return { ...rest, result: { runs: [...runs, ...kept.runs], not_listed: not_listed + kept.not_listed } }
    }
  },
})

const GO_ON: readonly string[] = [execWait, execOutput, execKill].map(({ name }) => name)

/** The tools of a server whose commands may stay with a keeper; null: none may. */
export const stayingTools = (tools: readonly Tool[], keeper: Keeper | null): readonly Tool[] =>
  tools.map((tool) => {
    if (EXEC_OPERATIONS.some((name) => name === tool.name)) return beginning(tool, keeper)
    if (keeper !== null && GO_ON.includes(tool.name)) return goingOn(tool, keeper)
    return keeper !== null && tool.name === execList.name ? listing(tool, keeper) : tool
  })
