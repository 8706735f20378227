import { existsSync, mkdirSync, readFileSync, readdirSync, rmdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { attempt, errnoOf } from '../base/errors.ts'
import { birthOf, isLiving } from '../base/proc-stat.ts'
import { CELL_END_MS, CELL_LOOK_MS } from './process-tree.ts'
import { processOf, send } from './signals.ts'

/** A control file; the kernel takes or refuses a write as a whole. Throws its error. */
export const writeControl = (directory: string, file: string, value: string | number): void =>
  writeFileSync(join(directory, file), String(value))

export const hasControl = (directory: string, file: string): boolean => existsSync(join(directory, file))

/** The words of a control file; none where it cannot be read. */
export const readControl = (directory: string, file: string): string[] =>
  attempt(() => readFileSync(join(directory, file), 'utf8').split(/\s+/).filter(Boolean)) ?? []

/** The processes of this very group, never ourselves. 0 stands for one that our PID namespace does not show. */
export const membersOf = (directory: string): number[] => [...walkMembers(directory)].filter((pid) => pid !== null)

/** The same, one after the other; null for each thread of one that was named already. */
export function* walkMembers(directory: string): Generator<number | null> {
  const threaded = isThreaded(directory)
  const seen = new Set([0, 1, process.pid])
  for (const text of readControl(directory, threaded ? 'cgroup.threads' : 'cgroup.procs')) {
    const pid = threaded ? processOf(Number(text)) : Number(text)
    yield seen.has(pid) ? null : pid
    seen.add(pid)
  }
}

/** A group of version 2 whose members are threads: the kernel does not list or kill its processes. */
const isThreaded = (directory: string): boolean => readControl(directory, 'cgroup.type')[0] === 'threaded'

/** The groups directly below. A host has hundreds, for whose paths `join` would be called so often at each start that the runtime compiles it once more, which is 5 MB. */
export const groupsBelow = (directory: string): string[] => {
  try {
    return readdirSync(directory, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map((entry) => `${directory}/${entry.name}`)
  } catch {
    return []
  }
}

/**
 * SIGKILL to everything in the group and below it; whom this misses is left to the next call. Groups of threads and of
 * version 1 have no `cgroup.kill`, nor have kernels before 5.14: their members are killed one by one.
 */
export const killGroup = (directory: string): void => {
  try {
    if (hasControl(directory, 'cgroup.kill') && !isThreaded(directory)) return writeControl(directory, 'cgroup.kill', 1)
    for (const below of groupsBelow(directory)) killGroup(below)
    // Who is born in a frozen group does not run, and a frozen process dies of SIGKILL all the same.
    if (hasControl(directory, 'cgroup.freeze')) writeControl(directory, 'cgroup.freeze', 1)
    for (const pid of membersOf(directory)) send(pid, 'SIGKILL')
  } catch {
    // It was removed while we looked.
  }
}

/** True when the group is no longer there. The kernel refuses while anybody lives in it or below. */
const removeNow = (directory: string): boolean => {
  try {
    rmdirSync(directory)
    return true
  } catch {
    return !existsSync(directory)
  }
}

/**
 * Kills what is in the group and removes it. A group can be removed when nobody lives in it: true means
 * that all are dead. False after CELL_END_MS, for a process that the kernel itself holds.
 */
export const endGroup = async (directory: string): Promise<boolean> => {
  // Most runs leave nobody behind, and then there is nothing to look for.
  if (removeNow(directory)) return true
  const deadline = performance.now() + CELL_END_MS
  for (;;) {
    killGroup(directory)
    for (const below of groupsBelow(directory)) removeNow(below)
    if (removeNow(directory)) return true
    if (performance.now() > deadline) return false
    await sleep(CELL_LOOK_MS)
  }
}

/** Counts the processes that live in the group and below it. Removes it where there are none, so that most runs need no look. */
export const livingIn = (directory: string): number => {
  if (removeNow(directory)) return 0
  const here = membersOf(directory).filter((pid) => isLiving({ pid, born: birthOf(pid) ?? '' }))
  return groupsBelow(directory).reduce((count, below) => count + livingIn(below), here.length)
}

/** Makes a group; `false` when there is one of that name. Throws what else is wrong. */
export const makeGroup = (directory: string): boolean => {
  try {
    mkdirSync(directory)
    return true
  } catch (error) {
    if (errnoOf(error) === 'EEXIST') return false
    throw error
  }
}
