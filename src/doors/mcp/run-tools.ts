import { OUTPUT_NAMES } from '../../protocol/reasons.ts'
import * as z from 'zod'
import { shellWords } from '../../base/format.ts'
import { DEFAULT_STDOUT_BYTES, MAX_LISTED_RUNS, MAX_VIEW_BYTES, MIN_PART_BYTES } from '../../protocol/limits/tools.ts'
import { TOOL_OUTPUT_PART, TOOL_RUN_STATES, answerOf } from '../tools/tool-result.ts'
import { type ToolRun } from '../tools/tool-run.ts'
import { zodOf } from '../zod-of.ts'
import { ANSWER_FIELD, RESULT, VIEW_FIELDS } from './exec-fields.ts'
import { viewOf } from './exec-tools.ts'
import { type McpTool, tool } from './tool.ts'
import { answerOnceDue, waitFor } from './wait-for.ts'

/** Reading a run changes nothing. */
const LOOKS = { readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false }

const RUN_ID = { run_id: z.string().min(1).max(80).describe('the run_id of a result') }

const AS_BEGUN = 'a whole number of bytes (default: as in the tool that started the run)'

/** Maximum characters of a command line in a list. */
const MAX_SHOWN_COMMAND = 200

export const execWait: McpTool = tool({
  name: 'exec_wait',
  title: 'Wait for a run',
  description:
    'Waits for a run and answers as the tool that started it. If the run outlasts the call, the answer has state running: then call again.',
  use: null,
  input: z.strictObject({
    ...RUN_ID,
    ...ANSWER_FIELD,
    max_stdout_bytes: VIEW_FIELDS.max_stdout_bytes.unwrap().optional().describe(AS_BEGUN),
    max_stderr_bytes: VIEW_FIELDS.max_stderr_bytes.unwrap().optional().describe(AS_BEGUN),
  }),
  output: RESULT,
  annotations: LOOKS,
  call: async (input, context, call) => {
    const run = context.runs.get(input.run_id)
    return answerOnceDue(run, viewOf(run.request.operation, input), { context, call, withinMs: input.answer_within_ms, cancels: false })
  },
})

export const execOutput: McpTool = tool({
  name: 'exec_output',
  title: 'Read more of the output',
  description:
    'Returns a part of the output of a run, from a byte offset: the middle that a result left out, or newer output. Continue at `next` until `more` is false and the state is ended. `lost` names text that is no longer kept.',
  use: null,
  input: z.strictObject({
    ...RUN_ID,
    stream: z.enum(OUTPUT_NAMES).default('stdout').describe('one of stdout, stderr (default stdout)'),
    from: z.int().min(0).default(0).describe('a whole number: the byte offset in the text (default 0)'),
    max_bytes: z
      .int()
      .min(MIN_PART_BYTES)
      .max(MAX_VIEW_BYTES)
      .default(DEFAULT_STDOUT_BYTES)
      .describe(`a whole number: maximum bytes in the answer (default ${DEFAULT_STDOUT_BYTES})`),
  }),
  output: zodOf(TOOL_OUTPUT_PART),
  annotations: LOOKS,
  call: async ({ run_id, stream, from, max_bytes }, { runs }) => {
    const run = runs.get(run_id)
    return async () => {
      const result = run.part(stream, from, max_bytes)
      return { result, isError: false, foreign: [result.text] }
    }
  },
})

export const execKill: McpTool = tool({
  name: 'exec_kill',
  title: 'End a run',
  description: 'Ends a command and its processes, or sends another signal, and answers how it ended. A queued command does not start.',
  use: null,
  input: z.strictObject({
    ...RUN_ID,
    signal: z.string().min(1).max(16).optional().describe('the name of a signal, such as INT or HUP (default: TERM, then KILL)'),
    ...ANSWER_FIELD,
  }),
  output: RESULT,
  annotations: { readOnlyHint: false, destructiveHint: true, idempotentHint: true, openWorldHint: false },
  call: async (input, context, call) => {
    const run = context.runs.get(input.run_id)
    if (input.signal === undefined) run.cancel()
    else run.signal(input.signal)
    // A signal need not end the run, so this call does not wait unless the client asks for it.
    await waitFor(run, { context, call, withinMs: input.answer_within_ms ?? (input.signal === undefined ? undefined : 0), cancels: false })
    const { result, foreign } = answerOf(run.result(viewOf(run.request.operation, {})))
    return () => ({ result, foreign, isError: false })
  },
})

const listed = (run: ToolRun, waitingBefore: number | null) => {
  const { operation, command, args, target } = run.request
  const { exit_code, signal, timeout_ms } = run.result({ stdout: 0, stderr: 0 })
  const { stdout, stderr } = run.text
  const line = shellWords([command, ...args])
  return {
    run_id: run.id,
    operation,
    command_line: line.length > MAX_SHOWN_COMMAND ? `${line.slice(0, MAX_SHOWN_COMMAND).toWellFormed()}…` : line,
    target,
    state: run.state,
    waiting_before: waitingBefore,
    exit_code,
    signal,
    stdout_bytes: stdout.kept.total,
    stderr_bytes: stderr.kept.total,
    started_at: run.startedAt,
    timeout_ms,
  }
}

export const execList: McpTool = tool({
  name: 'exec_list',
  title: 'List the runs',
  description: 'Lists the commands of this session that wait, run or ended recently, newest first.',
  use: null,
  input: z.strictObject({}),
  output: z.strictObject({
    runs: z.array(
      z.strictObject({
        run_id: z.string(),
        operation: z.string(),
        command_line: z.string().describe('command line, shortened if it is long'),
        target: z.string().nullable(),
        state: z.enum(TOOL_RUN_STATES),
        waiting_before: z.int().nullable().describe('number of commands that start before it'),
        exit_code: z.int().nullable(),
        signal: z.string().nullable(),
        stdout_bytes: z.int(),
        stderr_bytes: z.int(),
        started_at: z.string().nullable(),
        timeout_ms: z.int().nullable().describe('timeout in force; null if it has not started, or the target does not report it'),
      }),
    ),
    not_listed: z.int().describe('number of further runs'),
  }),
  annotations: LOOKS,
  call: async (_input, { runs }) => {
    return () => {
      const all = runs.all.toReversed()
      // Running commands are listed even if many others wait.
      const ordered = new Set([...all.filter(({ state }) => state === 'running'), ...all])
      const chosen = new Set([...ordered].slice(0, MAX_LISTED_RUNS))
      const shown = all.filter((run) => chosen.has(run)).map((run) => listed(run, runs.waitingBefore(run)))
      return { result: { runs: shown, not_listed: all.length - shown.length }, isError: false, foreign: [] }
    }
  },
})
