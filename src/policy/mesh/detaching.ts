import type { TomlPath, TomlReader, TomlTable } from '../../base/toml-reader.ts'
import { MAX_DETACHED_BYTES_PER_AGENT } from '../../protocol/detach-limits.ts'

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
