import type { PatternToken } from '../../protocol/argv-template.ts'
import type { Capability, LimitName } from '../../protocol/rexd/fields.ts'
import type { Root } from './file-permit.ts'

export type LocalLimits = Readonly<Record<LimitName, number>>

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

export interface CommandRule {
  readonly argv: readonly string[]
  readonly tokens: readonly PatternToken[]
  /** True if any further arguments match. */
  readonly anyArguments: boolean
  readonly line: number
}

/** Rights of local clients: `[security]` and `[limits]`, frozen. */
export interface LocalPolicy {
  readonly source: string
  readonly roots: readonly Root[]
  readonly granted: ReadonlySet<Capability>
  /** Null allows all commands that are not denied. */
  readonly allow_commands: readonly CommandRule[] | null
  readonly deny_commands: readonly CommandRule[]
  /** Mesh agents for which a session may be opened, named as in `x0x exec`; null allows any. */
  readonly targets: readonly string[] | null
  /** True if requests to targets carry the operator proof, so that clients act with the operator's rights. */
  readonly targets_as_operator: boolean
  /** Variables that a client may set; null allows any. */
  readonly allow_env: readonly string[] | null
  /** True to run all that the user could start, including replaceable programs and relative paths. */
  readonly any_program: boolean
  /** Environment of a program before the client's variables. */
  readonly env: Readonly<Record<string, string>>
  /** Terminals have no user who types: pagers print, editors fail and nothing prompts, unless the client sets otherwise. */
  readonly unattended?: true
  readonly limits: LocalLimits
}
