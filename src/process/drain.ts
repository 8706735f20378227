import { setImmediate as nextTurn } from 'node:timers/promises'

import type { Clock, Timer } from '../base/clock.ts'
import { DRAIN_MS } from '../protocol/limits.ts'
import { DRAIN_PAUSED_MS, DRAIN_TOTAL_MS } from '../protocol/local-limits.ts'

/** What a drain needs to see of the run. */
export interface DrainSubject {
  readonly isEnded: boolean
  readonly isPaused: boolean
  /** The run is being ended by us: nobody is owed the time of a slow reader. */
  readonly isTerminating: boolean
  /** All bytes taken so far; it stands still when nothing comes. */
  readonly total: number
  /** Settles when both streams have ended. */
  readonly ended: Promise<unknown>
}

/**
 * How the reading of the pipes came to its end after the process had exited: `ended` = end of file;
 * `held` = a descendant keeps them open; `unread` = the reader did not take what there was.
 */
export type DrainOutcome = 'ended' | 'held' | 'unread'

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
 * up after DRAIN_MS without a byte, after DRAIN_TOTAL_MS whatever comes, and after DRAIN_PAUSED_MS
 * when it is the reader who does not read.
 */
export const drain = async (subject: DrainSubject, clock: Clock): Promise<DrainOutcome> => {
  let reading = 0
  const began = clock.monotonic()
  while (!subject.isEnded) {
    const before = subject.total
    const wasPaused = subject.isPaused
    await sleep(clock, DRAIN_MS, subject.ended)
    // A timer that fires late on a busy machine fires before bytes that have long arrived: let those come first.
    await nextTurn()
    if (subject.isEnded) break
    const paused = wasPaused || subject.isPaused
    if (!paused && subject.total === before) return 'held'
    if (!paused || subject.isTerminating) reading += DRAIN_MS
    if (reading >= DRAIN_TOTAL_MS) return subject.isPaused ? 'unread' : 'held'
    if (clock.monotonic() - began >= DRAIN_PAUSED_MS) return subject.isPaused ? 'unread' : 'held'
  }
  return 'ended'
}
