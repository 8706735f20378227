import { setImmediate as nextTurn } from 'node:timers/promises'

import type { Clock, Timer } from '../base/clock.ts'
import { DRAIN_MS } from '../protocol/limits.ts'
import { DRAIN_TOTAL_MS } from '../protocol/local-limits.ts'

/** What a drain needs to see of the run. */
export interface DrainSubject {
  readonly isEnded: boolean
  /** More has come than the pipes of the ended process can have held. */
  readonly isPaused: boolean
  /** All bytes taken so far; it stands still when nothing comes. */
  readonly total: number
  /** Settles when both streams have ended. */
  readonly ended: Promise<unknown>
}

/**
 * How the reading of the pipes came to its end after the process had exited: `ended` = end of file;
 * `held` = a descendant keeps them open and is silent; `cut` = a descendant went on writing, and what it wrote is lost.
 */
export type DrainOutcome = 'ended' | 'held' | 'cut'

const sleep = async (clock: Clock, ms: number, wake: Promise<unknown>): Promise<void> => {
  let timer: Timer | undefined
  const slept = new Promise<void>((resolve) => {
    timer = clock.setTimeout(resolve, ms)
  })
  await Promise.race([slept, wake])
  timer?.cancel()
}

/**
 * Waits, after exit, until everything the process wrote has been read. Pipes that stay open are given
 * up after DRAIN_MS without a byte, and after DRAIN_TOTAL_MS whatever comes.
 */
export const drain = async (subject: DrainSubject, clock: Clock): Promise<DrainOutcome> => {
  const began = clock.monotonic()
  while (!subject.isEnded) {
    const before = subject.total
    await sleep(clock, DRAIN_MS, subject.ended)
    // A timer that fires late on a busy machine fires before bytes that have long arrived: let those come first.
    await nextTurn()
    if (subject.isEnded) break
    if (subject.isPaused || clock.monotonic() - began >= DRAIN_TOTAL_MS) return 'cut'
    if (subject.total === before) return 'held'
  }
  return 'ended'
}
