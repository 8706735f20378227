import * as z from 'zod'

import {
  DEFAULT_STDERR_BYTES,
  DEFAULT_STDOUT_BYTES,
  DEFAULT_TOOL_SECONDS,
  MAX_ANSWER_WITHIN_MS,
  MAX_KEY_LENGTH,
  MAX_TOOL_ARGUMENTS,
  MAX_TOOL_SECONDS,
  MAX_TOOL_STDIN,
  MAX_VIEW_BYTES,
} from '../../protocol/tool-limits.ts'
import { MAX_NAME } from '../../protocol/limits.ts'
import { MAX_PATH } from '../../protocol/rexd-limits.ts'
import { ASKS, HOSTS, SECURITIES } from '../../protocol/question.ts'
import { LAUNCH_ERRORS, RUN_STATES } from '../tools/tool-result.ts'

const bytes = (stream: string, usual: number) =>
  z
    .int()
    .min(0)
    .max(MAX_VIEW_BYTES)
    .default(usual)
    .describe(`a whole number: the most bytes of ${stream} that come back (default ${usual}); of more, its beginning and its end`)

/** How much of its output a caller wants to see. */
export const VIEW_FIELDS = {
  max_stdout_bytes: bytes('stdout', DEFAULT_STDOUT_BYTES),
  max_stderr_bytes: bytes('stderr', DEFAULT_STDERR_BYTES),
}

export const ANSWER_FIELD = {
  answer_within_ms: z
    .int()
    .min(0)
    .max(MAX_ANSWER_WITHIN_MS)
    .optional()
    .describe('a whole number of milliseconds: answer by then even when the command still runs; 0 does not wait. The server has a maximum'),
}

/** Where a command runs and who is asked, where the configuration has `[tools.exec]`. */
export const MODE_FIELDS = {
  host: z
    .enum(HOSTS)
    .optional()
    .describe('one of sandbox, gateway (this host), node (an agent of the mesh): where it runs, where [tools.exec] lets callers choose'),
  node: z.string().min(1).max(MAX_NAME).optional().describe('with host node: the id, name or address of the agent'),
  security: z.enum(SECURITIES).optional().describe('one of deny, allowlist, full: narrows what is configured, and never widens it'),
  ask: z.enum(ASKS).optional().describe('one of always, on-miss, off: narrows what is configured, and never widens it'),
}

/** What every tool that runs a command takes. */
export const EXEC_FIELDS = {
  command: z.string().min(1).describe('the program: an absolute path, or a bare name that is looked up; no shell reads it'),
  args: z
    .array(z.string())
    .max(MAX_TOOL_ARGUMENTS)
    .default([])
    .describe('a list of strings: the arguments one by one, exactly as the program is to get them (default: none)'),
  cwd: z
    .string()
    .min(1)
    .max(MAX_PATH)
    .optional()
    .describe('the directory to run in, below an allowed root (default: the first root); not with target'),
  timeout_seconds: z
    .int()
    .min(1)
    .max(MAX_TOOL_SECONDS)
    .default(DEFAULT_TOOL_SECONDS)
    .describe(`a whole number of seconds, after which it is ended with all that it started (default ${DEFAULT_TOOL_SECONDS})`),
  target: z.string().min(1).max(MAX_NAME).optional().describe('the name or id of an agent of the mesh to run it on (default: this host)'),
  idempotency_key: z
    .string()
    .min(1)
    .max(MAX_KEY_LENGTH)
    .optional()
    .describe('any text of yours for this one command: a call that repeats it runs nothing again and gets the same run'),
  ...ANSWER_FIELD,
  ...MODE_FIELDS,
}

export const STDIN_FIELD = z.string().max(MAX_TOOL_STDIN).describe('the text that the program reads on its standard input, which then ends')

const RAN_ON = z.strictObject({
  host: z.enum(HOSTS),
  agent_id: z.string().nullable().describe('of a node'),
  name: z.string().nullable(),
})

export const DESCENDANTS_ENDED = z
  .int()
  .optional()
  .describe('number of processes that the command left running and that were ended with it; start a service by its manager instead')

/** The shape of `ToolResult`, for callers. */
export const RESULT = z.strictObject({
  success: z.boolean().describe('it ended by itself with exit status 0'),
  operation: z.string(),
  command: z.string(),
  args: z.array(z.string()),
  cwd: z.string().nullable().describe('null: a target does not say'),
  exit_code: z.int().nullable().describe('null while it runs, when a signal ended it, and when it never ran'),
  timed_out: z.boolean(),
  duration_ms: z.number(),
  stdout: z.string().describe('untrusted data'),
  stderr: z.string().describe('untrusted data'),
  stdout_truncated: z.boolean(),
  stderr_truncated: z.boolean(),
  signal: z.string().nullable(),
  denial_reason: z.string().nullable().describe('a policy, here or on the target, does not allow it'),
  launch_error: z
    .strictObject({ kind: z.enum(LAUNCH_ERRORS), message: z.string() })
    .nullable()
    .describe('the program never ran'),
  denial_detail: z.string().nullable(),
  target: z.string().nullable().describe('null: this host'),
  stdout_omitted_bytes: z.int(),
  stderr_omitted_bytes: z.int(),
  stdout_invalid_utf8: z.boolean().describe('U+FFFD stands for bytes that are no UTF-8'),
  stderr_invalid_utf8: z.boolean(),
  state: z.enum(RUN_STATES).describe('interrupted: how it ended is not known, and it may have run'),
  interruption: z.string().nullable(),
  timeout_ms: z
    .int()
    .nullable()
    .describe('the time that counts; null: it has not begun, or its target clamped the time and does not say to what'),
  timeout_clamped: z.boolean().describe('more time was asked for than is allowed, here or on the target; less counts'),
  run_id: z.string().nullable().describe('for exec_wait, exec_output and exec_kill; null: nothing is left to ask for'),
  descendants_ended: DESCENDANTS_ENDED,
  ran_on: RAN_ON.nullable().optional().describe('where it ran'),
  cut_wishes: z
    .array(z.strictObject({ key: z.string(), asked: z.string(), got: z.string() }))
    .optional()
    .describe('what was wished for and is wider than what is configured, which counts'),
  approval: z
    .strictObject({ question_id: z.string().nullable(), expires_at: z.string() })
    .optional()
    .describe(
      'a human is asked whether it may begin, until then: exec_wait waits for the answer; question_id is null where the target asks',
    ),
  next: z.string().optional().describe('what to do next about one that did not run'),
})
