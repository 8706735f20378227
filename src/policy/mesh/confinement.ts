import type { TomlPath, TomlReader, TomlTable } from '../../base/toml.ts'

/** Minimum of `max_memory_bytes`. With less, no program can be loaded. */
export const MIN_MEMORY_BYTES = 1024 * 1024
/** Maximum of `max_processes`: the kernel's PID_MAX_LIMIT. */
export const MAX_PROCESSES = 4_194_304
/** Maximum of `max_cpu_secs`: a year. A larger value is a mistake. */
export const MAX_CPU_SECS = 366 * 24 * 60 * 60

/** Whether a run may start if only its process group keeps its processes together. */
export const CONTAIN_VALUES = ['best_effort', 'required'] as const
export type Contain = (typeof CONTAIN_VALUES)[number]

/** Restrictions that the system enforces on a run, named as in the file. Null or false means none. */
export interface Confinement {
  readonly contain: Contain
  /** For all processes together. */
  readonly max_memory_bytes: number | null
  /** Processes and threads at the same time. */
  readonly max_processes: number | null
  /** CPU time of each process. */
  readonly max_cpu_secs: number | null
  /** Added to the daemon's niceness. */
  readonly nice: number | null
  /** User name in /etc/passwd. */
  readonly run_as: string | null
  readonly no_network: boolean
  readonly read_only: boolean
  /** Three octal digits, such as `027`, or null for `COMMAND_UMASK`. */
  readonly umask: string | null
}

/** A key of an entry that this host cannot enforce. */
export interface Unenforceable {
  readonly key: keyof Confinement
  readonly why: string
}

/** Tests on this host whether the restrictions can be enforced. Returns those that cannot. */
export type EnforcementProbe = (confinement: Confinement) => Promise<readonly Unenforceable[]>

export const UNCONFINED: Confinement = Object.freeze({
  contain: 'best_effort',
  max_memory_bytes: null,
  max_processes: null,
  max_cpu_secs: null,
  nice: null,
  run_as: null,
  no_network: false,
  read_only: false,
  umask: null,
})

export const CONFINEMENT_KEYS = Object.keys(UNCONFINED) as (keyof Confinement)[]

/** Minimum and maximum of the numbers. */
const RANGES = {
  max_memory_bytes: [MIN_MEMORY_BYTES, Number.MAX_SAFE_INTEGER],
  max_processes: [1, MAX_PROCESSES],
  max_cpu_secs: [1, MAX_CPU_SECS],
  nice: [0, 19],
} as const satisfies Partial<Record<keyof Confinement, readonly [number, number]>>

/** Names that useradd(8) accepts. */
const USER_NAME = /^[a-z_][a-z0-9_.-]{0,31}$/i

export const isUserName = (text: string): boolean => USER_NAME.test(text)

/** Like umask(1): three octal digits, optionally after a zero. */
const UMASK = /^0?([0-7]{3})$/

/** Reads `contain` of the table at `path`. It may only be stricter than `around`. */
export const readContain = (toml: TomlReader, path: TomlPath, value: unknown, around: Contain): Contain => {
  if (value === undefined) return around
  const at = [...path, 'contain']
  const contain = CONTAIN_VALUES.find((known) => known === value)
  if (contain === undefined) toml.problem(at, `must be "required" or "best_effort"`)
  else if (contain === 'best_effort' && around === 'required') toml.problem(at, 'is "required" in [exec]; an entry may only tighten it')
  return contain ?? around
}

/** Reads the keys of the entry at `path`. `contain`: value of `[exec]`. */
export const readConfinement = (toml: TomlReader, path: TomlPath, table: TomlTable, contain: Contain): Confinement => {
  const number = (key: keyof typeof RANGES): number | null => {
    const [min, max] = RANGES[key]
    return toml.wholeNumber([...path, key], table[key], min, max)
  }
  const flag = (key: 'no_network' | 'read_only'): boolean => toml.boolean([...path, key], table[key]) ?? false
  const mask = table['umask']
  const umask = typeof mask === 'string' ? UMASK.exec(mask)?.[1] : undefined
  if (mask !== undefined && umask === undefined) toml.problem([...path, 'umask'], 'must be three octal digits as a string, such as "027"')
  const user = table['run_as']
  const named = typeof user === 'string' && isUserName(user)
  if (user !== undefined && !named) toml.problem([...path, 'run_as'], 'must be the name of a user')
  return {
    contain: readContain(toml, path, table['contain'], contain),
    max_memory_bytes: number('max_memory_bytes'),
    max_processes: number('max_processes'),
    max_cpu_secs: number('max_cpu_secs'),
    nice: number('nice'),
    run_as: named ? user : null,
    no_network: flag('no_network'),
    read_only: flag('read_only'),
    umask: umask ?? null,
  }
}

/** Default umask of commands: other users may read their files, and only the owner may change them. */
export const COMMAND_UMASK = 0o022

export const umaskOf = ({ umask }: Pick<Confinement, 'umask'>): number => (umask === null ? COMMAND_UMASK : Number.parseInt(umask, 8))

/** True if a run needs its own namespace. */
export const needsNamespace = ({ no_network, read_only }: Confinement): boolean => no_network || read_only

/** The restrictions as text: `max_processes 16, no_network`. */
export const confinementText = (confinement: Confinement): string =>
  CONFINEMENT_KEYS.flatMap((key) => {
    const value = confinement[key]
    if (value === null || value === false) return []
    return [value === true ? key : `${key} ${value}`]
  }).join(', ')
