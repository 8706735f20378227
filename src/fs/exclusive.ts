import type { BigIntStats } from 'node:fs'
import { Semaphore } from '../base/semaphore.ts'
import type { Found } from './open-file.ts'

/** A turnstile for each file that is being read or changed in this process. */
const busy = new Map<string, Semaphore>()

const keyOf = ({ dev, ino }: BigIntStats): string => `${dev}:${ino}`

/**
 * Does `work` while no other operation of this process works on any of these files; who comes first goes first. Every
 * operation takes its files in the same order, so that two cannot wait for one another. `infoOf` answers the status of a file
 * in its turn, since another operation may have changed it after it was found. Throws the signal's reason while it waits;
 * work that has begun is not stopped.
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
    return await work(async ({ held, info }) => (waited ? held.stat() : info))
  } finally {
    for (const leave of leaving) leave()
  }
}

const enter = async (key: string, signal: AbortSignal): Promise<() => void> => {
  const turnstile = busy.get(key) ?? new Semaphore({ limit: 1 })
  busy.set(key, turnstile)
  const forget = (): void => void (turnstile.free && busy.delete(key))
  try {
    const leave = await turnstile.acquire(signal)
    return () => {
      leave()
      forget()
    }
  } catch (error) {
    forget()
    throw error
  }
}
