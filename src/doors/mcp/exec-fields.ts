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
    .describe(`a whole number: the most bytes of ${stream} that come back (default ${usual}); of more, its beginning and its end`)

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
    .describe('a whole number of milliseconds: answer by then even when the command still runs; 0 does not wait. The server has a maximum'),
}

/** Execution target and mode, if the configuration has `[tools.exec]`. */
export const MODE_FIELDS = {
  host: z
    .enum(HOSTS)
    .optional()
    .describe('one of sandbox, gateway (this host), node (an agent of the mesh): where it runs, where [tools.exec] lets callers choose'),
  node: z.string().min(1).max(MAX_NAME).optional().describe('with host node: the id, name or address of the agent'),
  security: z.enum(SECURITIES).optional().describe('one of deny, allowlist, full: narrows what is configured, and never widens it'),
  ask: z.enum(ASKS).optional().describe('one of always, on-miss, off: narrows what is configured, and never widens it'),
}

/** Input of every tool that runs a command. */
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
  detach: z
    .boolean()
    .optional()
    .describe(
      'true, with target and idempotency_key: a detached run, which goes on when this session ends, for timeout_seconds at most; the same call in a later session follows it (default false)',
    ),
  ...ANSWER_FIELD,
  ...MODE_FIELDS,
}

export const STDIN_FIELD = z.string().max(MAX_TOOL_STDIN).describe('the text that the program reads on its standard input, which then ends')

export const RESULT = zodOf(TOOL_RESULT)
