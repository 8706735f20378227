import * as z from 'zod'
import { AppError } from '../../base/errors.ts'
import { type ExecPreference, preferenceOf } from '../../protocol/api/exec-target.ts'
import { commandSize } from '../../protocol/api/rules.ts'
import { MAX_COMMAND_JSON } from '../../protocol/limits/daemon.ts'
import { DEFAULT_STDERR_BYTES, DEFAULT_STDOUT_BYTES, STATUS_STDERR_BYTES } from '../../protocol/limits/tools.ts'
import type { ToolRequest } from '../tools/tool-request.ts'
import type { ExecOperation } from '../tools/tool-result.ts'
import type { View } from '../tools/tool-run.ts'
import { EXEC_FIELDS, RESULT, STDIN_FIELD, VIEW_FIELDS } from './exec-fields.ts'
import { type DeferredAnswer, type McpTool, type ToolCall, type ToolContext, tool } from './tool.ts'
import { answerOnceDue } from './wait-for.ts'

/** A command may do anything that the configuration allows. */
const RUNS_COMMANDS = { readOnlyHint: false, destructiveHint: true, idempotentHint: false, openWorldHint: true }

/** Input of all these tools, with the fields of each. */
interface ExecInput {
  readonly command: string
  readonly args: readonly string[]
  readonly cwd?: string | undefined
  readonly timeout_seconds: number
  readonly target?: string | undefined
  readonly idempotency_key?: string | undefined
  readonly detach?: boolean | undefined
  readonly answer_within_ms?: number | undefined
  readonly max_stdout_bytes?: number | undefined
  readonly max_stderr_bytes?: number | undefined
  readonly stdin?: string | undefined
  readonly host?: ExecPreference['host'] | undefined
  readonly node?: string | undefined
  readonly security?: ExecPreference['security'] | undefined
  readonly ask?: ExecPreference['ask'] | undefined
}

/** The output limits of an operation, with its defaults. */
export const viewOf = (operation: string, { max_stdout_bytes, max_stderr_bytes }: Partial<ExecInput>): View =>
  operation === 'exec_status'
    ? { stdout: 0, stderr: STATUS_STDERR_BYTES }
    : { stdout: max_stdout_bytes ?? DEFAULT_STDOUT_BYTES, stderr: max_stderr_bytes ?? DEFAULT_STDERR_BYTES }

/** Throws `bad_request` if a detached run is not possible. */
const detaches = ({ detach = false, target, idempotency_key: key, stdin = '' }: ExecInput): boolean => {
  if (!detach) return false
  if (target === undefined)
    throw new AppError('bad_request', 'detach: needs target, because a command of this host ends with its session', {
      data: { next: "target may be this machine's own agent (x0x id), if its ACL has an entry for it with detach = true" },
    })
  if (key === undefined) throw new AppError('bad_request', 'detach: needs idempotency_key, so that a later session can find the run')
  if (stdin !== '') throw new AppError('bad_request', 'detach: a detached run cannot have stdin')
  return true
}

const requestOf = (operation: ExecOperation, input: ExecInput): ToolRequest => {
  const { command, args, cwd = null, target = null, stdin = '', timeout_seconds: seconds } = input
  const bytes = commandSize([command, ...args], [])
  if (bytes > MAX_COMMAND_JSON)
    throw new AppError(
      'bad_request',
      `args: ${bytes} bytes as JSON, including the command; the maximum is ${MAX_COMMAND_JSON}; send long data by stdin`,
    )
  const detach = detaches(input)
  const wish = preferenceOf(input)
  if (wish !== null && target !== null)
    throw new AppError('bad_request', 'target: give either target, or host = "node" with node; not both')
  const asked = {
    operation,
    command,
    args,
    cwd,
    target,
    env: {},
    stdin: Buffer.from(stdin),
    timeout_ms: seconds * 1_000,
    ...(detach && { detach }),
  }
  return wish === null ? asked : { ...asked, wish }
}

const run = async (operation: ExecOperation, input: ExecInput, context: ToolContext, call: ToolCall): Promise<DeferredAnswer> => {
  const one = context.runs.start(requestOf(operation, input), input.idempotency_key ?? null)
  return answerOnceDue(one, viewOf(operation, input), { context, call, withinMs: input.answer_within_ms, cancels: true })
}

export const execStatus: McpTool = tool({
  name: 'exec_status',
  title: 'Run and report success',
  description:
    'Runs a command and reports whether it succeeded: exit code, duration, and the start and end of stderr. Use it for checks, builds and tests whose output you do not need.',
  use: 'run a command and learn whether it worked, without its output.',
  input: z.strictObject(EXEC_FIELDS),
  output: RESULT,
  annotations: RUNS_COMMANDS,
  call: async (input, context, call) => run('exec_status', input, context, call),
})

export const execCapture: McpTool = tool({
  name: 'exec_capture',
  title: 'Run and read',
  description: 'Runs a command and returns its output, up to a limit. Use it if you must read what the command prints.',
  use: 'run a command and read its output.',
  input: z.strictObject({ ...EXEC_FIELDS, ...VIEW_FIELDS }),
  output: RESULT,
  annotations: RUNS_COMMANDS,
  call: async (input, context, call) => run('exec_capture', input, context, call),
})

export const execWithInput: McpTool = tool({
  name: 'exec_with_input',
  title: 'Run with input',
  description: 'As exec_capture, with a text as standard input. Use it for formatters, validators and filters instead of temporary files.',
  use: 'run a command that reads a text on standard input.',
  input: z.strictObject({ ...EXEC_FIELDS, stdin: STDIN_FIELD, ...VIEW_FIELDS }),
  output: RESULT,
  annotations: RUNS_COMMANDS,
  call: async (input, context, call) => run('exec_with_input', input, context, call),
})

export const execCommand: McpTool = tool({
  name: 'exec',
  title: 'Run (for compatibility)',
  description:
    'Runs a command. For clients that know no other tool: prefer exec_status, exec_capture and exec_with_input. If the command fails, the call is an error.',
  use: 'run a command, only if no other tool fits.',
  input: z.strictObject({ ...EXEC_FIELDS, stdin: STDIN_FIELD.optional(), ...VIEW_FIELDS }),
  output: RESULT,
  annotations: RUNS_COMMANDS,
  call: async (input, context, call) => run('exec', input, context, call),
})
