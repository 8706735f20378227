import type { PatternToken } from '../../protocol/argv-template.ts'
import type { Capability, LimitName } from '../../protocol/rexd/fields.ts'
import type { Root } from './file-permit.ts'

export type LocalLimits = Readonly<Record<LimitName, number>>

/** What a file that names no limit gets. */
export const DEFAULT_LOCAL_LIMITS: LocalLimits = Object.freeze({
  max_output_bytes: 1_048_576,
  max_file_read_bytes: 1_048_576,
  max_processes_per_session: 8,
  default_timeout_ms: 30_000,
  hard_timeout_ms: 300_000,
  max_concurrent_sessions: 16,
  max_detached_processes: 8,
  max_detached_ms: 86_400_000,
})

/** One command of `allow_commands` or `deny_commands`. */
export interface CommandRule {
  /** As written in the file. */
  readonly argv: readonly string[]
  readonly tokens: readonly PatternToken[]
  /** Whatever follows the tokens fits too. */
  readonly anyArguments: boolean
  /** The line of the file, from 1. */
  readonly line: number
}

/** What callers of this host's own doors may do: all of `[security]` and `[limits]`, frozen. */
export interface LocalPolicy {
  /** The file it came from. */
  readonly source: string
  readonly roots: readonly Root[]
  readonly granted: ReadonlySet<Capability>
  /** Null: whatever is not denied. */
  readonly allow_commands: readonly CommandRule[] | null
  readonly deny_commands: readonly CommandRule[]
  /** Agents of the mesh that a session may be opened for, as `x0x exec` names them; null: any. */
  readonly targets: readonly string[] | null
  /** What is asked of targets carries the operator's proof: callers speak with the operator's word. */
  readonly targets_as_operator: boolean
  /** Variables that a caller may set; null: any. */
  readonly allow_env: readonly string[] | null
  /** Whatever its user could start is run: also what others may replace, and a path that goes on from the working directory. */
  readonly any_program: boolean
  /** The environment of a program, before what the caller sets. */
  readonly env: Readonly<Record<string, string>>
  /** Its terminals have nobody who types: pagers print, editors fail, and nothing prompts, unless the caller sets otherwise. */
  readonly unattended?: true
  readonly limits: LocalLimits
}
