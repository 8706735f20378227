import type { CutWish, RanOn } from '../../protocol/run-place.ts'

/** Bounded tools that run a command, from the most bounded to the least. */
export const EXEC_OPERATIONS = ['exec_status', 'exec_capture', 'exec_with_input', 'exec'] as const
export type ExecOperation = (typeof EXEC_OPERATIONS)[number]

/**
 * Why no program came to run. `not_found`: there is none of that name. `not_executable`: it may not be executed, or others could
 * put another in its place. `config`: where or how it was to run makes no sense, such as a directory that is not there.
 * `spawn`: the system, or the way to the target, failed.
 */
export const LAUNCH_ERRORS = ['not_found', 'not_executable', 'config', 'spawn'] as const
export interface LaunchError {
  readonly kind: (typeof LAUNCH_ERRORS)[number]
  readonly message: string
}

/** `waiting_for_approval`: a human is asked whether it may begin. `interrupted`: how it ended is not known; it may have run. */
export const RUN_STATES = ['queued', 'waiting_for_approval', 'running', 'ended', 'interrupted'] as const
export type RunState = (typeof RUN_STATES)[number]

/** What every tool that runs a command answers: the same fields in the same order, wherever it ran. Null: not known, or there is none. */
export interface ToolResult {
  /** It ended by itself with exit status 0. */
  readonly success: boolean
  readonly operation: string
  readonly command: string
  readonly args: readonly string[]
  /** Null: a target does not say. */
  readonly cwd: string | null
  readonly exit_code: number | null
  readonly timed_out: boolean
  readonly duration_ms: number
  readonly stdout: string
  readonly stderr: string
  /** Bytes are missing from it: from its middle, above what this host takes, or of a run of an earlier server. */
  readonly stdout_truncated: boolean
  readonly stderr_truncated: boolean
  /** That ended it, such as `SIGTERM`. */
  readonly signal: string | null
  /** The policy here, or the ACL of the target, does not allow it. */
  readonly denial_reason: string | null
  readonly launch_error: LaunchError | null
  /** What a person is told of the denial. */
  readonly denial_detail: string | null
  /** The agent of the mesh that it ran on; null: this host. */
  readonly target: string | null
  readonly stdout_omitted_bytes: number
  readonly stderr_omitted_bytes: number
  /** U+FFFD stands in it for bytes that are no UTF-8. */
  readonly stdout_invalid_utf8: boolean
  readonly stderr_invalid_utf8: boolean
  readonly state: RunState
  /** Why it is not known here how it ended; null: it is, or it goes on here. */
  readonly interruption: string | null
  /** The time that counts, in milliseconds. Null: it has not begun, or its target clamped the time that was asked for and does not say to what. */
  readonly timeout_ms: number | null
  /** More time was asked for than the configuration here, or the ACL of the target, allows: less counts. */
  readonly timeout_clamped: boolean
  /** For `exec_wait`, `exec_output` and `exec_kill`; null where nothing is left to ask for. */
  readonly run_id: string | null
  /** Processes that the command left running and that were ended with it; absent: there were none. */
  readonly descendants_ended?: number
  /** Absent: the configuration does not choose among hosts. Null: it was not decided. */
  readonly ran_on?: RanOn | null
  /** Wishes of its caller that were wider than what is configured; absent: none was. */
  readonly cut_wishes?: readonly CutWish[]
  /** The question that a human is asked, `question_id` null: by its target; absent: none is asked now. */
  readonly approval?: { readonly question_id: string | null; readonly expires_at: string }
  /** What to do next about one that did not run; absent: nobody says. */
  readonly next?: string
}

/** A part of the text of one stream. Places are bytes of it, from 0. */
export interface OutputPart {
  readonly run_id: string
  readonly stream: 'stdout' | 'stderr'
  readonly from: number
  readonly text: string
  readonly next: number
  readonly total: number
  /** What was asked for and is no longer kept. */
  readonly lost: { readonly from: number; readonly to: number } | null
  readonly dropped_bytes: number
  readonly more: boolean
  readonly state: RunState
}

/** What a tool answers, whatever it does. */
export interface ToolAnswer {
  readonly result: object
  /** The tool could not do what it was asked to do. */
  readonly isError: boolean
  /** Texts in `result` that neither this host nor the caller wrote. */
  readonly foreign: readonly string[]
}

/** What a target says of a run is its own text, as what a program writes is. */
const foreignIn = ({ stdout, stderr, target, denial_reason, denial_detail, launch_error, interruption, next }: ToolResult): string[] => {
  const said = target === null ? [] : [denial_reason, denial_detail, launch_error?.message, interruption, next]
  return [stdout, stderr, ...said.filter((text) => typeof text === 'string')]
}

/**
 * A result that the caller can use is no error, a command that failed among them. One of `exec` is where its command
 * failed, as callers of its elder namesakes expect.
 */
export const answerOf = (result: ToolResult): ToolAnswer => ({
  result,
  isError:
    result.denial_reason !== null ||
    result.launch_error !== null ||
    result.state === 'interrupted' ||
    (result.operation === 'exec' && result.state === 'ended' && !result.success),
  foreign: foreignIn(result),
})
