import type { TomlPath, TomlReader, TomlTable } from '../../base/toml.ts'
import type { PatternToken } from '../../protocol/argv-template.ts'
import type { AgentId, MachineId } from '../../protocol/ids.ts'
import { MAX_DETACHED_BYTES_PER_AGENT } from '../../protocol/limits/detached.ts'
import type { AlwaysAskRule, CommandPattern } from '../approval/ask-rules.ts'
import type { Confinement, Contain } from './confinement.ts'
import type { FileGrant } from './file-grants.ts'
import { type WiderRight, allows, moreOf } from './wider-right.ts'

/** Limits of an entry's detached runs. */
export interface Detaching {
  /** Maximum duration, in place of `max_duration_secs`. */
  readonly max_secs: number
  /** Maximum bytes of stored output, both streams together. */
  readonly max_output_bytes: number
}

/** Default limits of an entry with `detach = true`. They allow an hour, and as much output as a person reads. */
export const DEFAULT_DETACHING: Detaching = Object.freeze({ max_secs: 3_600, max_output_bytes: 8 * 1024 * 1024 })

/** Maximum of `max_detach_secs`, a month. Run longer tasks as a service of that host. */
export const MAX_DETACH_SECS = 31 * 24 * 60 * 60

export const DETACHING_KEYS = ['detach', 'max_detach_secs', 'max_detach_output_bytes'] as const

/** Reads the keys of the entry at `path`, or null if it allows no detached runs. */
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

/** How the limits of detached runs grew from one entry to the next. */
export const outlivesLonger = (old: Detaching | null, next: Detaching | null): WiderRight[] => {
  if (next === null) return []
  if (old === null) return [allows('detach')]
  return [
    ...(next.max_secs > old.max_secs ? [moreOf('max_detach_secs', next.max_secs, old.max_secs)] : []),
    ...(next.max_output_bytes > old.max_output_bytes
      ? [moreOf('max_detach_output_bytes', next.max_output_bytes, old.max_output_bytes)]
      : []),
  ]
}

/** Limits of output, input and time in bytes and seconds, named as in the file. */
export interface RunLimits {
  readonly max_stdout_bytes: number
  readonly max_stderr_bytes: number
  readonly max_stdin_bytes: number
  readonly max_duration_secs: number
  readonly warn_stdout_bytes: number
  readonly warn_stderr_bytes: number
  readonly warn_duration_secs: number
}

export interface Caps extends RunLimits {
  readonly max_concurrent_per_agent: number
  readonly max_concurrent_total: number
}

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

/** Keys of the limits in `[exec]`. */
export const EXEC_CAP_KEYS = Object.keys(DEFAULT_CAPS) as (keyof Caps)[]

export interface AllowedCommand {
  readonly argv: readonly string[]
  readonly tokens: readonly PatternToken[]
  /** False if the requester may not send stdin, even below the limit. */
  readonly stdin: boolean
  /** True if the requester may run it on a terminal and type while it runs. */
  readonly terminal: boolean
  /** True if a transcript of each run is kept on this machine. */
  readonly record: boolean
  /** True if operators of this machine may look on while it runs. */
  readonly watch: boolean
  readonly line: number
}

/** True if the requester may send stdin. A limit of 0 forbids it too. */
export const isStdinOpen = ({ limits }: Pick<AllowEntry, 'limits'>, { stdin }: Pick<AllowedCommand, 'stdin'>): boolean =>
  stdin && limits.max_stdin_bytes > 0

/** A command that the entry does not list and an approver may allow. */
export interface AskPattern extends AllowedCommand, CommandPattern {}

/** Approvals that an entry requires. */
export interface EntryAsking {
  /** With `always`, a local approver decides about each run, and with `on-miss` only about runs that match a pattern. */
  readonly ask: 'off' | 'on-miss' | 'always'
  readonly patterns: readonly AskPattern[]
  /** Mesh agents that may approve. Each run needs `approvals_needed` of them. */
  readonly approvers: readonly AgentId[]
  readonly approvals_needed: number
}

/** Value of an entry without approval keys. */
export const NOBODY_ASKED: EntryAsking = Object.freeze({ ask: 'off', patterns: [], approvers: [], approvals_needed: 0 })

/** Permissions of one pair of agent and machine. */
export interface AllowEntry {
  /** The operator's label, or `allow[N]` without one. */
  readonly description: string
  /** The label in the file, or null without one. */
  readonly described: string | null
  /** True if the pair may query the commands of this entry. */
  readonly discoverable: boolean
  readonly agent_id: AgentId
  readonly machine_id: MachineId
  readonly commands: readonly AllowedCommand[]
  /** Files that the pair may read or write. */
  readonly files: readonly FileGrant[]
  /** Limits of `[exec]`, replaced by lower ones of this entry. */
  readonly limits: RunLimits
  /** Restrictions that the system enforces on its runs. */
  readonly confinement: Confinement
  /** Approvals that its runs need. */
  readonly asking: EntryAsking
  /** Limits of its detached runs, or null if it allows no detached runs. */
  readonly detaching: Detaching | null
  readonly line: number
}

/** A validated, frozen ACL. */
export interface Acl {
  readonly enabled: boolean
  readonly caps: Caps
  /** Minimum of all entries. */
  readonly contain: Contain
  /** Entries in the order of the file. */
  readonly allow: readonly AllowEntry[]
  /** Commands that need a local approver for each run, for all requesters. */
  readonly always_ask: readonly AlwaysAskRule[]
  /** Directory in which runs start, or null for the daemon's working directory. */
  readonly default_cwd: string | null
  /** Null only without `[exec]`, when no command can run. */
  readonly audit_log_path: string | null
  /** Reserved for a mirror of the audit log, and unused. */
  readonly audit_tasklist_id: string | null
  /** Path of the file, or null if it is missing. */
  readonly source: string | null
}

/** The entries for this agent on this machine, in the order of the file. */
export const entriesFor = (
  { allow }: Pick<Acl, 'allow'>,
  { agent_id, machine_id }: Pick<AllowEntry, 'agent_id' | 'machine_id'>,
): readonly AllowEntry[] => allow.filter((entry) => entry.agent_id === agent_id && entry.machine_id === machine_id)

/** The ACL of a host without an ACL file. It allows no command. */
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
