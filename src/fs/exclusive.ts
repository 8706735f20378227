import type { BigIntStats } from 'node:fs'

/** Files that are being changed here, each with the last of those who change it or wait to. */
const changing = new Map<string, Promise<void>>()

const keyOf = ({ dev, ino }: BigIntStats): string => `${dev}:${ino}`

/** Does work that changes these files while nothing else of ours changes any of them. What is taken in one order cannot deadlock. */
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
  const before = changing.get(key)
  changing.set(key, promise)
  await before
  return () => {
    if (changing.get(key) === promise) changing.delete(key)
    resolve()
  }
}

/** Resolves when nothing of ours is changing the file: who reads it then does not see half of a change. */
export const unchanging = async (file: BigIntStats): Promise<void> => {
  for (let change = changing.get(keyOf(file)); change !== undefined; change = changing.get(keyOf(file))) await change
}
