import type { TomlPath, TomlReader, TomlTable } from '../../base/toml.ts'
import type { PatternToken } from '../../protocol/argv-template.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import { MAX_DETACHED_BYTES_PER_AGENT } from '../../protocol/limits/detached.ts'
import type { AlwaysAskRule, CommandPattern } from '../approval/ask-rules.ts'
import type { Confinement, Contain } from './confinement.ts'

/** What runs of an entry may take that outlive their callers. */
export interface Detaching {
  /** How long one may run, in place of `max_duration_secs`. */
  readonly max_secs: number
  /** What is kept of its output at most, in bytes of both streams together. */
  readonly max_output_bytes: number
}

/** What an entry has that says `detach = true` and no more: an hour, and what a person reads at most. */
export const DEFAULT_DETACHING: Detaching = Object.freeze({ max_secs: 3_600, max_output_bytes: 8 * 1024 * 1024 })

/** The most `max_detach_secs`: a month; what is to go on for longer is a service of that host. */
export const MAX_DETACH_SECS = 31 * 24 * 60 * 60

export const DETACHING_KEYS = ['detach', 'max_detach_secs', 'max_detach_output_bytes'] as const

/** The keys of the entry at `path`; null: its runs end with their callers. */
export const readDetaching = (toml: TomlReader, path: TomlPath, table: TomlTable): Detaching | null => {
  const allowed = toml.boolean([...path, 'detach'], table['detach']) ?? false
  const number = (key: 'max_detach_secs' | 'max_detach_output_bytes', max: number): number | null => {
    if (table[key] !== undefined && !allowed) toml.problem([...path, key], 'is given, and the entry does not say detach = true')
    return toml.wholeNumber([...path, key], table[key], 1, max)
  }
  const max_secs = number('max_detach_secs', MAX_DETACH_SECS) ?? DEFAULT_DETACHING.max_secs
  const max_output_bytes = number('max_detach_output_bytes', MAX_DETACHED_BYTES_PER_AGENT) ?? DEFAULT_DETACHING.max_output_bytes
  return allowed ? { max_secs, max_output_bytes } : null
}

/** Why runs of the one entry may outlive their callers by more than those of the other. */
export const outlivesLonger = (old: Detaching | null, next: Detaching | null): string[] => {
  if (next === null) return []
  if (old === null) return ['detach is true, and was not']
  return [
    ...(next.max_secs > old.max_secs ? [`max_detach_secs is ${next.max_secs}, and was ${old.max_secs}`] : []),
    ...(next.max_output_bytes > old.max_output_bytes
      ? [`max_detach_output_bytes is ${next.max_output_bytes}, and was ${old.max_output_bytes}`]
      : []),
  ]
}

/** Limits of output, input and time, under the names they have in the file. Bytes and seconds. */
export interface RunLimits {
  readonly max_stdout_bytes: number
  readonly max_stderr_bytes: number
  readonly max_stdin_bytes: number
  readonly max_duration_secs: number
  readonly warn_stdout_bytes: number
  readonly warn_stderr_bytes: number
  readonly warn_duration_secs: number
}

/** The caps of `[exec]`: those of a run, and how many runs there may be at once. */
export interface Caps extends RunLimits {
  readonly max_concurrent_per_agent: number
  readonly max_concurrent_total: number
}

/** What a file that names no cap gets. */
export const DEFAULT_CAPS: Caps = Object.freeze({
  max_stdout_bytes: 16_777_216,
  max_stderr_bytes: 16_777_216,
  max_stdin_bytes: 1_048_576,
  max_duration_secs: 300,
  max_concurrent_per_agent: 4,
  max_concurrent_total: 32,
  warn_stdout_bytes: 8_388_608,
  warn_stderr_bytes: 8_388_608,
  warn_duration_secs: 60,
})

/** One allowed call shape. */
export interface AllowedCommand {
  /** As written in the file. */
  readonly argv: readonly string[]
  readonly tokens: readonly PatternToken[]
  /** False: the caller may send no stdin, whatever the cap. */
  readonly stdin: boolean
  /** The line of the file, from 1. */
  readonly line: number
}

/** May the caller of this command send stdin? A cap of 0 closes it too. */
export const isStdinOpen = ({ limits }: Pick<AllowEntry, 'limits'>, { stdin }: Pick<AllowedCommand, 'stdin'>): boolean =>
  stdin && limits.max_stdin_bytes > 0

/** A command that an entry does not list, and a human may allow. */
export interface AskPattern extends AllowedCommand, CommandPattern {}

/** Whom the commands of an entry need, beyond the file. */
export interface EntryAsking {
  /** `always`: a human of this host for each; `on-miss`: for those that only a pattern has. */
  readonly ask: 'off' | 'on-miss' | 'always'
  readonly patterns: readonly AskPattern[]
  /** Other agents, of whom so many must allow each run. */
  readonly approvers: readonly AgentId[]
  readonly approvals_needed: number
}

/** What an entry that says nothing has. */
export const NOBODY_ASKED: EntryAsking = Object.freeze({ ask: 'off', patterns: [], approvers: [], approvals_needed: 0 })

/** What one (agent, machine) pair may run. */
export interface AllowEntry {
  /** The operator's label, or `allow[N]` where the file gives none. */
  readonly description: string
  /** As the file has it; null where it has none. */
  readonly described: string | null
  /** Its pair is told of its commands when it asks which it may run. */
  readonly discoverable: boolean
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly commands: readonly AllowedCommand[]
  /** The caps of `[exec]` with this entry's own, lower ones in their place. */
  readonly limits: RunLimits
  /** What the system enforces on its runs. */
  readonly confinement: Confinement
  /** Whom its runs need beyond this file. */
  readonly asking: EntryAsking
  /** Its runs may outlive their callers; null: none may. */
  readonly detaching: Detaching | null
  /** The line of the file, from 1. */
  readonly line: number
}

/** A validated ACL file, frozen. */
export interface Acl {
  readonly enabled: boolean
  readonly caps: Caps
  /** What every entry has at least. */
  readonly contain: Contain
  /** In the order of the file. */
  readonly allow: readonly AllowEntry[]
  /** Commands that need a human of this host each time, whoever asks. */
  readonly always_ask: readonly AlwaysAskRule[]
  /** Where a child starts; null: where the daemon stands. */
  readonly default_cwd: string | null
  /** Null only where there is no `[exec]`, so that nothing can run. */
  readonly audit_log_path: string | null
  /** Kept for a mirror of the journal; nothing reads it yet. */
  readonly audit_tasklist_id: string | null
  /** The file it came from; null where there was none. */
  readonly source: string | null
}

/** What a host without an ACL has: nobody may run anything. */
export const closedAcl = (source: string | null): Acl =>
  Object.freeze({
    enabled: false,
    caps: DEFAULT_CAPS,
    contain: 'best_effort',
    allow: Object.freeze([]),
    always_ask: Object.freeze([]),
    default_cwd: null,
    audit_log_path: null,
    audit_tasklist_id: null,
    source,
  })
