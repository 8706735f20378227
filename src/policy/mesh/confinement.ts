import { MAX_CPU_SECS, MAX_PROCESSES, MIN_MEMORY_BYTES } from '../../protocol/containment-limits.ts'

/** Whether a run may go on where only its process group holds it together. */
export const CONTAIN_VALUES = ['best_effort', 'required'] as const
export type Contain = (typeof CONTAIN_VALUES)[number]

/** What the system enforces on the processes of a run, under the names they have in the file; null or false: nothing. */
export interface Confinement {
  readonly contain: Contain
  /** Of all its processes together. */
  readonly max_memory_bytes: number | null
  /** At once, threads included. */
  readonly max_processes: number | null
  /** Processor time of each of its processes. */
  readonly max_cpu_secs: number | null
  /** Added to the daemon's own niceness. */
  readonly nice: number | null
  /** A name of /etc/passwd. */
  readonly run_as: string | null
  readonly no_network: boolean
  readonly read_only: boolean
}

export const UNCONFINED: Confinement = Object.freeze({
  contain: 'best_effort',
  max_memory_bytes: null,
  max_processes: null,
  max_cpu_secs: null,
  nice: null,
  run_as: null,
  no_network: false,
  read_only: false,
})

export const CONFINEMENT_KEYS = Object.keys(UNCONFINED) as (keyof Confinement)[]

/** The numbers among them, with their bounds. */
const RANGES = {
  max_memory_bytes: [MIN_MEMORY_BYTES, Number.MAX_SAFE_INTEGER],
  max_processes: [1, MAX_PROCESSES],
  max_cpu_secs: [1, MAX_CPU_SECS],
  nice: [0, 19],
} as const satisfies Partial<Record<keyof Confinement, readonly [number, number]>>

/** Names that useradd(8) takes. */
const USER_NAME = /^[a-z_][a-z0-9_.-]{0,31}$/i

/** Says what is wrong with the value of a key. */
export type Complain = (key: keyof Confinement, reason: string) => void

/** `contain` of a table over that around it, which it may only tighten. */
export const readContain = (value: unknown, around: Contain, complain: Complain): Contain => {
  if (value === undefined) return around
  const contain = CONTAIN_VALUES.find((known) => known === value)
  if (contain === undefined) complain('contain', `must be "required" or "best_effort"`)
  else if (contain === 'best_effort' && around === 'required') complain('contain', 'is "required" in [exec]; an entry may only tighten it')
  return contain ?? around
}

/** The keys of one entry; `contain` is that of `[exec]`. Integers come as bigint. */
export const readConfinement = (table: Readonly<Record<string, unknown>>, contain: Contain, complain: Complain): Confinement => {
  const number = (key: keyof typeof RANGES): number | null => {
    const value = table[key]
    const [min, max] = RANGES[key]
    if (value === undefined) return null
    if (typeof value === 'bigint' && value >= BigInt(min) && value <= BigInt(max)) return Number(value)
    complain(key, `must be a whole number from ${min} to ${max}`)
    return null
  }
  const flag = (key: 'no_network' | 'read_only'): boolean => {
    const value = table[key]
    if (value !== undefined && typeof value !== 'boolean') complain(key, 'must be true or false')
    return value === true
  }
  const user = table['run_as']
  const named = typeof user === 'string' && USER_NAME.test(user)
  if (user !== undefined && !named) complain('run_as', 'must be the name of a user')
  return {
    contain: readContain(table['contain'], contain, complain),
    max_memory_bytes: number('max_memory_bytes'),
    max_processes: number('max_processes'),
    max_cpu_secs: number('max_cpu_secs'),
    nice: number('nice'),
    run_as: named ? user : null,
    no_network: flag('no_network'),
    read_only: flag('read_only'),
  }
}

/** True where a run needs a namespace of its own, whatever else holds it together. */
export const needsNamespace = ({ no_network, read_only }: Confinement): boolean => no_network || read_only

/** The limits that are set, for a reader: `max_processes 16, no_network`. */
export const confinementText = (confinement: Confinement): string =>
  CONFINEMENT_KEYS.flatMap((key) => {
    const value = confinement[key]
    if (value === null || value === false) return []
    return [value === true ? key : `${key} ${value}`]
  }).join(', ')
