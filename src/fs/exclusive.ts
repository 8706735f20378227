import type { BigIntStats } from 'node:fs'

/** Files that are being read or changed here, each with the last of those who do or wait to. */
const busy = new Map<string, Promise<void>>()

const keyOf = ({ dev, ino }: BigIntStats): string => `${dev}:${ino}`

/** Does work on these files while nothing else of ours does on any of them; who comes first goes first. What is taken in one order cannot deadlock. */
export const exclusively = async <T>(files: readonly BigIntStats[], work: () => Promise<T>): Promise<T> => {
  const leaving: (() => void)[] = []
  try {
    for (const key of [...new Set(files.map(keyOf))].toSorted()) leaving.push(await enter(key))
    return await work()
  } finally {
    for (const leave of leaving) leave()
  }
}

const enter = async (key: string): Promise<() => void> => {
  const { promise, resolve } = Promise.withResolvers<void>()
  const before = busy.get(key)
  busy.set(key, promise)
  await before
  return () => {
    if (busy.get(key) === promise) busy.delete(key)
    resolve()
  }
}
