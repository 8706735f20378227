import * as z from 'zod'
import { ASKS, HOSTS, SECURITIES } from '../../protocol/desk/approval-request.ts'
import { MAX_PATH } from '../../protocol/limits/rexd.ts'
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
} from '../../protocol/limits/tools.ts'
import { MAX_NAME } from '../../protocol/limits/wire.ts'
import { TOOL_RESULT } from '../tools/tool-result.ts'
import { zodOf } from '../zod-of.ts'

const bytes = (stream: string, usual: number) =>
  z
    .int()
    .min(0)
    .max(MAX_VIEW_BYTES)
    .default(usual)
    .describe(`a whole number: maximum bytes of ${stream} in the answer (default ${usual}). Longer output is cut in the middle`)

/** Limits of the output in an answer. */
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
    .describe('a whole number of milliseconds: answer by then even if the command still runs; 0 does not wait. The server has a maximum'),
}

/** Execution target and mode, if the configuration has `[tools.exec]`. */
export const MODE_FIELDS = {
  host: z
    .enum(HOSTS)
    .optional()
    .describe('one of sandbox, gateway (this host), node (a mesh agent): where the command runs, if [tools.exec] allows a choice'),
  node: z.string().min(1).max(MAX_NAME).optional().describe('with host node: the ID, name or address of the agent'),
  security: z.enum(SECURITIES).optional().describe('one of deny, allowlist, full: can only narrow the configuration'),
  ask: z.enum(ASKS).optional().describe('one of always, on-miss, off: can only narrow the configuration'),
}

/** Input of every tool that runs a command. */
export const EXEC_FIELDS = {
  command: z.string().min(1).describe('the program: an absolute path, or a name to look up. It runs without a shell'),
  args: z
    .array(z.string())
    .max(MAX_TOOL_ARGUMENTS)
    .default([])
    .describe('a list of strings: the arguments, passed to the program unchanged (default: none)'),
  cwd: z
    .string()
    .min(1)
    .max(MAX_PATH)
    .optional()
    .describe('the working directory, below an allowed root (default: the first root); not with target'),
  timeout_seconds: z
    .int()
    .min(1)
    .max(MAX_TOOL_SECONDS)
    .default(DEFAULT_TOOL_SECONDS)
    .describe(`a whole number of seconds, after which the command and its processes are ended (default ${DEFAULT_TOOL_SECONDS})`),
  target: z.string().min(1).max(MAX_NAME).optional().describe('the name or ID of the mesh agent that runs it (default: this host)'),
  idempotency_key: z
    .string()
    .min(1)
    .max(MAX_KEY_LENGTH)
    .optional()
    .describe('any text that identifies this command: a call with the same key starts nothing and gets the same run'),
  detach: z
    .boolean()
    .optional()
    .describe(
      'true, with target and idempotency_key: a detached run, which continues after this session, for at most timeout_seconds. The same call in a later session follows it (default false)',
    ),
  ...ANSWER_FIELD,
  ...MODE_FIELDS,
}

export const STDIN_FIELD = z.string().max(MAX_TOOL_STDIN).describe('the whole standard input of the program')

export const RESULT = zodOf(TOOL_RESULT)
