import type { Dice } from '../chaos/dice.ts'

/** Fate of a host and of the command on it. */
export type Fate =
  | 'quick'
  | 'fails'
  | 'talks'
  | 'slow'
  /** The command runs until the deadline of the fan-out. */
  | 'endless'
  /** After SIGTERM at the deadline, the command takes one more second and then succeeds. */
  | 'late'
  | 'denied'
  /** The daemon does not run when it is asked. */
  | 'dead'
  /** The whole daemon is killed while the command runs. */
  | 'killed'
  /** The network process is killed while the command runs. */
  | 'halved'
  /** The connection is cut while the command runs, for longer than the lease. */
  | 'cut'
  /** The connection is cut while the command runs, and works again at once. */
  | 'blinks'

export interface HostPlan {
  readonly name: string
  /** A real daemon in its own processes. Otherwise one of many nodes in this process, without interfaces. */
  readonly isReal: boolean
  readonly fate: Fate
}

/** Fates that may end as unknown. The end of all other hosts is known. */
export const MAY_BE_UNKNOWN: ReadonlySet<Fate> = new Set(['killed', 'halved', 'cut', 'blinks'])

/** Each fate comes once before further ones are random. */
const REAL_FATES = ['killed', 'cut', 'late', 'dead', 'halved', 'blinks', 'denied'] as const
const FATES = ['quick', 'quick', 'quick', 'fails', 'talks', 'slow', 'slow', 'endless', 'late', 'denied', 'dead'] as const

/** Shell script that the command runs in the directory of the host. */
export const SCRIPTS: Readonly<Record<Fate, string>> = {
  quick: 'exit 0',
  fails: 'exit 7',
  talks: 'seq 1 30000; exit 0',
  slow: 'sleep 1; exit 0',
  endless: 'sleep 600',
  late: `trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done`,
  denied: 'exit 0',
  dead: 'exit 0',
  killed: 'sleep 600',
  halved: 'sleep 600',
  cut: 'sleep 600',
  blinks: 'sleep 2; exit 0',
}

export const planned = (dice: Dice, real: number, inProcess: number): HostPlan[] => {
  const names = (prefix: string, count: number): string[] => Array.from({ length: count }, (_none, at) => `${prefix}${at + 1}`)
  return [
    ...names('real', real).map((name, at) => ({ name, isReal: true, fate: REAL_FATES[at] ?? dice.pick(FATES)! })),
    ...names('node', inProcess).map((name, at) => ({ name, isReal: false, fate: FATES[at] ?? dice.pick(FATES)! })),
  ]
}
