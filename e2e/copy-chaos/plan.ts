import type { Dice } from '../chaos/dice.ts'

/** Faults that can happen to a round of copies. */
export const FAULTS = [
  'none',
  /** Resets all connections once. */
  'cut',
  /** Resets all connections, and refuses new ones until some were tried. */
  'blackout',
  'kill client',
  'kill requester',
  'kill target',
  'restart requester',
  'restart target',
  'kill network process',
  'full disk',
] as const
export type Fault = (typeof FAULTS)[number]

const KIB = 1024
const MIB = 1024 * KIB
const MAX_BYTES = 40 * MIB
/** Maximum size of a copy to the small disk, so that all copies fit when it has room again. */
const MAX_DISK_BYTES = 2 * MIB

export interface PlannedCopy {
  readonly name: string
  readonly direction: 'up' | 'down'
  readonly size: number
  /** Size of the file that exists at the destination before the copy, or null. */
  readonly oldSize: number | null
}

/** Copies that run at the same time, and their fault. */
export interface PlannedRound {
  readonly fault: Fault
  readonly copies: readonly PlannedCopy[]
  /** Part of the first copy's bytes after which the fault happens. At 0, it happens when the first request is in the request log. */
  readonly at: number
  /** Number of connections that a blackout refuses. */
  readonly refused: number
  /** Whether failed copies are repeated after this round instead of at the end. */
  readonly repeats: boolean
}

const sizeOf = (dice: Dice, fault: Fault, isFirst: boolean): number => {
  // At least one copy does not fit.
  if (fault === 'full disk') return isFirst ? dice.between(MIB, MAX_DISK_BYTES) : dice.between(0, MAX_DISK_BYTES)
  // A fault in the middle of a copy needs a copy that takes a while.
  const kind = isFirst && dice.chance(0.5) ? 1 : dice.roll()
  if (kind < 0.1) return 0
  if (kind < 0.6) return dice.between(1, 64 * KIB)
  if (kind < 0.85) return dice.between(64 * KIB, 4 * MIB)
  return dice.between(4 * MIB, MAX_BYTES)
}

/** All faults are equally frequent, in random order. */
export const planOf = (dice: Dice, copies: number, atOnce: number): PlannedRound[] => {
  const rounds: PlannedRound[] = []
  let faults: Fault[] = []
  for (let first = 0; first < copies; first += atOnce) {
    if (faults.length === 0) faults = dice.shuffled(FAULTS)
    const fault = faults.pop()!
    rounds.push({
      fault,
      copies: Array.from({ length: Math.min(atOnce, copies - first) }, (_none, i) => ({
        name: `copy-${first + i}`,
        direction: dice.chance(0.5) ? 'up' : 'down',
        size: sizeOf(dice, fault, i === 0),
        oldSize: dice.chance(0.5) ? dice.between(0, 64 * KIB) : null,
      })),
      at: dice.chance(0.3) ? 0 : dice.roll(),
      refused: dice.between(1, 4),
      repeats: dice.chance(0.5),
    })
  }
  return rounds
}
