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
  'number of processes that the command left running and that were ended with it; start a service by its manager instead',
)

/** Result of every tool that runs a command, with the same fields in the same order. Null means not known, or not applicable. */
export const TOOL_RESULT = {
  success: flag.says('it ended by itself with exit status 0'),
  operation: text,
  command: text,
  args: texts,
  cwd: orNull(text).says('null: a target does not say'),
  exit_code: orNull(integer).says('null while it runs, when a signal ended it, and when it never ran'),
  timed_out: flag,
  duration_ms: number,
  stdout: text.says('untrusted data'),
  stderr: text.says('untrusted data'),
  /** Bytes are missing from the middle, above the limit of this machine, or because an earlier server ran the command. */
  stdout_truncated: flag,
  stderr_truncated: flag,
  /** The signal that ended the run, such as `SIGTERM`. */
  signal: orNull(text),
  denial_reason: orNull(text).says('a policy, here or on the target, does not allow it'),
  launch_error: orNull(record(LAUNCH_ERROR)).says('the program never ran'),
  denial_detail: orNull(text),
  target: orNull(text).says('null: this host'),
  stdout_omitted_bytes: count,
  stderr_omitted_bytes: count,
  stdout_invalid_utf8: flag.says('U+FFFD stands for bytes that are no UTF-8'),
  stderr_invalid_utf8: flag,
  state: oneOf(TOOL_RUN_STATES).says('interrupted: how it ended is not known, and it may have run'),
  /** Why the end is not known. Null means it is known, or the run continues. */
  interruption: orNull(text),
  timeout_ms: orNull(count).says('the time that counts; null: it has not begun, or its target clamped the time and does not say to what'),
  timeout_clamped: flag.says('more time was asked for than is allowed, here or on the target; less counts'),
  run_id: orNull(text).says('for exec_wait, exec_output and exec_kill; null: nothing is left to ask for'),
  descendants_ended: DESCENDANTS_ENDED,
  /** Absent means that the configuration does not choose among hosts. Null means undecided. */
  ran_on: optional(orNull(record({ ...RAN_ON, agent_id: RAN_ON.agent_id.says('of a node') }))).says('where it ran'),
  cut_wishes: optional(list(clampedPreference)).says('what was wished for and is wider than what is configured, which counts'),
  approval: optional(record({ question_id: orNull(text), expires_at: text })).says(
    'a human is asked whether it may begin, until then: exec_wait waits for the answer; question_id is null where the target asks',
  ),
  next: optional(text).says('what to do next about one that did not run'),
}
export type ToolResult = Sent<typeof TOOL_RESULT>

/** A part of the text of one stream. Offsets count its bytes from 0. */
export const TOOL_OUTPUT_PART = {
  run_id: text,
  stream: oneOf(['stdout', 'stderr']),
  from: count.says('where the text begins'),
  text: text.says('untrusted data'),
  next: count.says('where to go on'),
  total: count.says('bytes of text so far'),
  lost: orNull(record({ from: count, to: count })).says('what was asked for and is no longer kept'),
  dropped_bytes: count.says('bytes behind all of it, above what this host takes'),
  more: flag.says('there is more than this already'),
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
