import * as z from 'zod'
import { isAppError } from '../../base/errors.ts'
import { shellWords } from '../../base/format.ts'
import { VERSION } from '../../base/runtime.ts'
import { shown } from '../../base/visible-text.ts'
import { ALLOWED_ARGUMENTS, type CommandLookup, type RulesJson } from '../../protocol/api/rules.ts'
import { MAX_NAME } from '../../protocol/limits/wire.ts'
import { shownNext } from '../tools/run-end.ts'
import { LAUNCH_ERROR, type ToolAnswer } from '../tools/tool-result.ts'
import { zodOf } from '../zod-of.ts'
import { type McpTool, type ToolCall, type ToolContext, tool } from './tool.ts'
import { inTime } from './wait-for.ts'

const targetField = (text: string) => z.string().min(1).max(MAX_NAME).optional().describe(text)

const PROBLEM = z.strictObject({ code: z.string(), message: z.string(), next: z.string().optional() }).nullable()

const UNTOLD = 'a target does not list its programs'
const TRY_IT = 'exec_status runs it, or reports that it is denied or missing'
/** Maximum number of a target's commands in one answer. */
const MAX_COMMANDS = 20

const lookupAnswer = (command: string, lookup: CommandLookup, duration_ms: number): ToolAnswer => {
  const { found, path, real_path, searched, problem, allowed_arguments, denial } = lookup
  const result = {
    success: found === true,
    operation: 'which_command',
    command,
    args: [],
    cwd: null,
    duration_ms,
    found,
    path: path === null ? null : shown(path),
    real_path: real_path === null ? null : shown(real_path),
    symlink_followed: path === null ? null : path !== real_path,
    executable: path === null ? null : found,
    searched,
    allowed_arguments,
    denial_reason: denial?.code ?? null,
    denial_detail: denial?.detail ?? null,
    launch_error: problem === null ? null : { kind: problem.kind, message: shown(problem.detail) },
    target: null,
    detail: null,
  }
  return { result, isError: false, foreign: [] }
}

/** What a target reports about a program: the commands with it that the target allows. */
const toldBy = (
  target: string,
  command: string,
  asked: PreflightInput<RulesJson>,
): { readonly isAllowed: boolean; readonly detail: string } => {
  if ('problem' in asked) {
    const { message, next } = asked.problem
    return { isAllowed: false, detail: `${UNTOLD}, and this target was not reached: ${[message, next ?? []].flat().join('; ')}` }
  }
  const { denial_reason, rules } = asked.value
  if (denial_reason !== null)
    return {
      isAllowed: false,
      detail: `${UNTOLD}, and this target does not list the commands that it allows (${denial_reason}): ${TRY_IT}`,
    }
  const commands = rules.filter(({ argv }) => argv[0] === command).map(({ argv }) => shellWords(argv))
  if (commands.length === 0)
    return { isAllowed: false, detail: `${UNTOLD}, and no command that this target lists begins with this program; it may allow others` }
  const more = commands.length > MAX_COMMANDS ? `, and ${commands.length - MAX_COMMANDS} more` : ''
  return { isAllowed: true, detail: shown(`${UNTOLD}; ${target} allows: ${commands.slice(0, MAX_COMMANDS).join(', ')}${more}`) }
}

const answerOfTarget = (command: string, target: string, asked: PreflightInput<RulesJson>, duration_ms: number): ToolAnswer => {
  const { isAllowed, detail } = toldBy(target, command, asked)
  const about = { success: false, operation: 'which_command', command, args: [], cwd: null, duration_ms, found: null }
  const nothing = { path: null, real_path: null, symlink_followed: null, executable: null, searched: null }
  const policy = { allowed_arguments: isAllowed ? 'some' : null, denial_reason: null, denial_detail: null, launch_error: null }
  return { result: { ...about, ...nothing, ...policy, target, detail }, isError: false, foreign: [detail] }
}

/** The answer of a target, or the reason why there is none. */
type PreflightInput<T> =
  | { readonly value: T }
  | { readonly problem: { readonly code: string; readonly message: string; readonly next?: string } }

/** Mistakes of the client. Any other failure to reach the target is an answer. */
const MISTAKES = ['bad_request', 'unknown_agent', 'ambiguous_agent'] as const

/** Asks a target until the call must be answered. Throws mistakes of the client. */
const askTarget = async <T>(ask: (signal: AbortSignal) => Promise<T>, context: ToolContext, call: ToolCall): Promise<PreflightInput<T>> => {
  const answered = async (signal: AbortSignal): Promise<PreflightInput<T>> =>
    ask(signal).then(
      (value): PreflightInput<T> => ({ value }),
      (error: unknown): PreflightInput<T> => {
        if (!isAppError(error) || MISTAKES.some((code) => error.code === code)) throw error
        return { problem: { code: error.code, message: shown(error.message), ...shownNext(error) } }
      },
    )
  const answer = await inTime(answered, context, call)
  return answer ?? { problem: { code: 'timeout', message: `no answer within ${context.answerWithinMs} ms` } }
}

export const whichCommand: McpTool = tool({
  name: 'which_command',
  title: 'Look up a program',
  description: 'Reports whether a program exists and may run, and its path. Runs nothing. found: false is not an error.',
  use: 'check that a program exists and is allowed, without running it.',
  input: z.strictObject({
    command: z.string().min(1).max(4_096).describe('a program: an absolute path, or a name to look up'),
    target: targetField('the name or ID of a mesh agent (default: this host)'),
  }),
  output: z.strictObject({
    success: z.boolean().describe('the program exists, and at least some arguments are allowed'),
    operation: z.string(),
    command: z.string(),
    args: z.array(z.string()),
    cwd: z.null(),
    duration_ms: z.number(),
    found: z.boolean().nullable().describe('a run would start it; null if it is denied, or with a target'),
    path: z.string().nullable().describe('path that a run would start'),
    real_path: z.string().nullable().describe('path after following all links'),
    symlink_followed: z.boolean().nullable(),
    executable: z.boolean().nullable().describe('false if the file exists but may not be executed'),
    searched: z.array(z.string()).nullable().describe('directories that were searched for a bare name, in this order'),
    allowed_arguments: z
      .enum(ALLOWED_ARGUMENTS)
      .nullable()
      .describe('which arguments of this program are allowed, by the configuration of this host or the listed rules of the target'),
    denial_reason: z.string().nullable().describe('reason why no run of it is allowed'),
    denial_detail: z.string().nullable(),
    launch_error: zodOf(LAUNCH_ERROR).nullable().describe('error with which a run would fail'),
    target: z.string().nullable().describe('name of the target; null for this host'),
    detail: z.string().nullable(),
  }),
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
  call: async ({ command, target = null }, context, call) => {
    const { sessions, executor, clock } = context
    const begin = clock.monotonic()
    const took = (): number => Math.round(clock.monotonic() - begin)
    const answer = await sessions.use(target, async ({ id }) => {
      if (target === null) return lookupAnswer(command, await executor.lookUp(id, command), took())
      const asked = await askTarget(async (signal) => executor.rules(id, signal), context, call)
      return answerOfTarget(command, target, asked, took())
    })
    return () => answer
  },
})

export const checkHost: McpTool = tool({
  name: 'check_host',
  title: 'Check a host',
  description: 'Reports whether this host or a mesh agent answers, and its roots and limits. Runs nothing.',
  use: 'check whether this host or a target answers.',
  input: z.strictObject({ target: targetField('the name or ID of a mesh agent (default: this host)') }),
  output: z.strictObject({
    success: z.boolean(),
    operation: z.string(),
    target: z.string().nullable().describe('name of the target; null for this host'),
    duration_ms: z.number(),
    reachable: z.boolean(),
    problem: PROBLEM.describe('why the target was not reached'),
    version: z.string().nullable().describe('version of this server; null with a target'),
    agent_id: z.string().nullable().describe('authenticated agent ID of the target'),
    machine_id: z.string().nullable().describe('authenticated machine ID of the target'),
    trust: z.string().nullable().describe("decision of this host's trust rules about the target"),
    capabilities: z.array(z.string()),
    workspace_roots: z.array(z.string()).describe('allowed roots of commands and files; empty with a target'),
    limits: z.record(z.string(), z.int()),
  }),
  annotations: { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: true },
  call: async ({ target = null }, context, call) => {
    const { sessions, clock } = context
    const begin = clock.monotonic()
    const { grant, reached } = await sessions.use(target, async (session) => ({
      grant: session.grant,
      reached: target === null ? null : await askTarget(async (signal) => context.executor.reach(session.id, signal), context, call),
    }))
    const problem = reached !== null && 'problem' in reached ? reached.problem : null
    const link = reached !== null && 'value' in reached ? reached.value : null
    const result = {
      success: problem === null,
      operation: 'check_host',
      target,
      duration_ms: Math.round(clock.monotonic() - begin),
      reachable: problem === null,
      problem,
      version: target === null ? VERSION : null,
      agent_id: link?.agent_id ?? null,
      machine_id: link?.machine_id ?? null,
      trust: link?.decision ?? null,
      capabilities: grant.capabilities,
      workspace_roots: grant.workspace_roots,
      limits: grant.limits,
    }
    return () => ({ result, isError: false, foreign: problem === null ? [] : [problem.message, problem.next ?? ''] })
  },
})
