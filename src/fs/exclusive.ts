import type { BigIntStats } from 'node:fs'

import { Turnstile } from '../base/turnstile.ts'
import type { Found } from './held.ts'

/** Files that are being read or changed here. */
const busy = new Map<string, Turnstile>()

const keyOf = ({ dev, ino }: BigIntStats): string => `${dev}:${ino}`

/**
 * Does work on these files while nothing else of ours does on any of them; who comes first goes first. What is taken in one
 * order cannot deadlock. By `infoOf` the work learns what is so of one of them in its turn: something of ours may have changed it
 * since it was found. Throws the signal's reason where that aborts the wait; work that has begun is not called off.
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
  const turnstile = busy.get(key) ?? new Turnstile({ limit: 1 })
  busy.set(key, turnstile)
  const forget = (): void => void (turnstile.free && busy.delete(key))
  try {
    const leave = await turnstile.enter(signal)
    return () => {
      leave()
      forget()
    }
  } catch (error) {
    forget()
    throw error
  }
}
