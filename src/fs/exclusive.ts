import type { BigIntStats } from 'node:fs'
import { Semaphore } from '../base/semaphore.ts'
import type { Found } from './open-file.ts'

/** A semaphore for each file that this process is reading or changing. */
const busy = new Map<string, Semaphore>()

const keyOf = ({ dev, ino }: BigIntStats): string => `${dev}:${ino}`

/**
 * Runs `work` while no other operation of this process uses these files; first come, first served. All operations lock files in the same
 * order, so they cannot deadlock. `infoOf` returns the current status of a file, which another operation may have changed since it was
 * found. Throws the signal's reason while it waits; `work` is not interrupted.
 */
export const exclusively = async <T>(
  files: readonly BigIntStats[],
  work: (infoOf: (found: Found) => Promise<BigIntStats>) => Promise<T>,
  signal: AbortSignal,
): Promise<T> => {
  const leaving: (() => void)[] = []
  const keys = [...new Set(files.map(keyOf))].toSorted()
  const waited = keys.some((key) => busy.has(key))
  try {
    for (const key of keys) leaving.push(await enter(key, signal))
    return await work(async ({ handle, info }) => (waited ? handle.stat() : info))
  } finally {
    for (const leave of leaving) leave()
  }
}

const enter = async (key: string, signal: AbortSignal): Promise<() => void> => {
  const limiter = busy.get(key) ?? new Semaphore({ limit: 1 })
  busy.set(key, limiter)
  const forget = (): void => void (limiter.free && busy.delete(key))
  try {
    const leave = await limiter.acquire(signal)
    return () => {
      leave()
      forget()
    }
  } catch (error) {
    forget()
    throw error
  }
}
