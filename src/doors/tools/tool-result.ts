import { RAN_ON, clampedPreference } from '../../protocol/api/exec-target.ts'
import { type Sent, count, flag, integer, list, number, oneOf, optional, orNull, record, text, texts } from '../../protocol/json-table.ts'

/** Tools that run a command, from the most bounded to the least. */
export const EXEC_OPERATIONS = ['exec_status', 'exec_capture', 'exec_with_input', 'exec'] as const
export type ExecOperation = (typeof EXEC_OPERATIONS)[number]

/**
 * Why no program ran. `not_found` means that the program is missing. With `not_executable`, the file may not be executed, or other users
 * could replace it. `config` is an invalid setting, such as a missing directory. With `spawn`, the system or the connection to the target
 * failed.
 */
export const LAUNCH_ERRORS = ['not_found', 'not_executable', 'config', 'spawn'] as const
export const LAUNCH_ERROR = { kind: oneOf(LAUNCH_ERRORS), message: text }
export type LaunchError = Sent<typeof LAUNCH_ERROR>

/** With `waiting_for_approval`, an approval is pending. With `interrupted`, the end is not known, and the command may have run. */
export const TOOL_RUN_STATES = ['queued', 'waiting_for_approval', 'running', 'ended', 'interrupted'] as const
export type ToolRunState = (typeof TOOL_RUN_STATES)[number]

export const DESCENDANTS_ENDED = optional(count).says(
  'number of processes that the command left running and that x0x ended; start services with a service manager instead',
)

/** Result of every tool that runs a command, with the same fields in the same order. Null means not known, or not applicable. */
export const TOOL_RESULT = {
  success: flag.says('the command ended by itself with exit status 0'),
  operation: text,
  command: text,
  args: texts,
  cwd: orNull(text).says('working directory; null on a target'),
  exit_code: orNull(integer).says('null while it runs, after a signal, and if it never ran'),
  timed_out: flag,
  duration_ms: number,
  stdout: text.says('untrusted data'),
  stderr: text.says('untrusted data'),
  /** Bytes are missing from the middle, above the limit of this machine, or because an earlier server ran the command. */
  stdout_truncated: flag,
  stderr_truncated: flag,
  /** The signal that ended the run, such as `SIGTERM`. */
  signal: orNull(text),
  denial_reason: orNull(text).says('reason why the policy of this machine or of the target refuses it'),
  launch_error: orNull(record(LAUNCH_ERROR)).says('why the program never ran'),
  denial_detail: orNull(text),
  target: orNull(text).says('name of the target; null for this host'),
  stdout_omitted_bytes: count,
  stderr_omitted_bytes: count,
  stdout_invalid_utf8: flag.says('U+FFFD replaces bytes that are not UTF-8'),
  stderr_invalid_utf8: flag,
  state: oneOf(TOOL_RUN_STATES).says('interrupted: its end is unknown, and it may have run'),
  /** Why the end is not known. Null means it is known, or the run continues. */
  interruption: orNull(text),
  timeout_ms: orNull(count).says('timeout in force; null if it has not started, or the target reduced the timeout to an unknown value'),
  timeout_clamped: flag.says('the requested timeout exceeded a limit of this machine or of the target, and was reduced'),
  run_id: orNull(text).says('ID for exec_wait, exec_output and exec_kill; null if there is nothing more to read'),
  descendants_ended: DESCENDANTS_ENDED,
  /** Absent means that the configuration does not choose among hosts. Null means undecided. */
  ran_on: optional(orNull(record({ ...RAN_ON, agent_id: RAN_ON.agent_id.says('agent ID of a node') }))).says('host on which it ran'),
  cut_wishes: optional(list(clampedPreference)).says('preferences that exceeded the configuration, and the values used instead'),
  approval: optional(record({ question_id: orNull(text), expires_at: text })).says(
    'pending approval request and its expiry; exec_wait waits for the decision; question_id is null if the target asks',
  ),
  next: optional(text).says('what to do next; present if it did not run'),
}
export type ToolResult = Sent<typeof TOOL_RESULT>

/** A part of the text of one stream. Offsets count its bytes from 0. */
export const TOOL_OUTPUT_PART = {
  run_id: text,
  stream: oneOf(['stdout', 'stderr']),
  from: count.says('offset of the first byte of text'),
  text: text.says('untrusted data'),
  next: count.says('offset at which to continue'),
  total: count.says('bytes of output so far'),
  lost: orNull(record({ from: count, to: count })).says('requested range that is no longer kept; null if none'),
  dropped_bytes: count.says('bytes after the kept output, above the limit of this host'),
  more: flag.says('more output is available now'),
  state: oneOf(TOOL_RUN_STATES),
}
export type ToolOutputPart = Sent<typeof TOOL_OUTPUT_PART>

export interface ToolAnswer {
  readonly result: object
  /** Whether the tool failed. */
  readonly isError: boolean
  /** Untrusted texts in `result`, from programs or from the target. */
  readonly foreign: readonly string[]
}

/** A target's texts about a run are as untrusted as program output. */
const foreignIn = ({ stdout, stderr, target, denial_reason, denial_detail, launch_error, interruption, next }: ToolResult): string[] => {
  const said = target === null ? [] : [denial_reason, denial_detail, launch_error?.message, interruption, next]
  return [stdout, stderr, ...said.filter((text) => typeof text === 'string')]
}

/** A usable result is not an error, even if the command failed. For `exec`, a failed command is an error, as clients of similar tools expect. */
export const answerOf = (result: ToolResult): ToolAnswer => ({
  result,
  isError:
    result.denial_reason !== null ||
    result.launch_error !== null ||
    result.state === 'interrupted' ||
    (result.operation === 'exec' && result.state === 'ended' && !result.success),
  foreign: foreignIn(result),
})
