import type { Dice } from '../chaos/dice.ts'

/** What becomes of a host, and of the command on it. */
export type Fate =
  | 'quick'
  | 'fails'
  | 'talks'
  | 'slow'
  /** Until the deadline of all. */
  | 'endless'
  /** Told to end at the deadline, it takes a second more and ends as if nothing had been. */
  | 'late'
  | 'denied'
  /** Not up when it is asked. */
  | 'dead'
  /** All of the daemon is killed while the command runs there. */
  | 'killed'
  /** Its network's half is killed while the command runs there. */
  | 'halved'
  /** Its connection is cut while the command runs there, and stays so for longer than the lease. */
  | 'cut'
  /** Its connection is cut while the command runs there, and is there again at once. */
  | 'blinks'

export interface HostPlan {
  readonly name: string
  /** A process of its own, whole; else one of many in this process, without doors. */
  readonly isReal: boolean
  readonly fate: Fate
}

/** What is lost there in the middle may be unknown here; of all others it is known. */
export const MAY_BE_UNKNOWN: ReadonlySet<Fate> = new Set(['killed', 'halved', 'cut', 'blinks'])

/** Each comes before one is left to chance. */
const REAL_FATES = ['killed', 'cut', 'late', 'dead', 'halved', 'blinks', 'denied'] as const
const FATES = ['quick', 'quick', 'quick', 'fails', 'talks', 'slow', 'slow', 'endless', 'late', 'denied', 'dead'] as const

/** What `/bin/sh` does there, in the directory of the host. */
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
