import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'

import { descendantsOf } from '../src/process/descendant-tracker.ts'
import { launcherPid } from './launcher.ts'

/** Bytes received from a program's stdout, thrown away as they come. */
export const drain = async (file: string, argv: readonly string[]): Promise<number> => {
  const child = spawn(file, argv, { stdio: ['ignore', 'pipe', 'ignore'] })
  let received = 0
  child.stdout.on('data', (chunk: Buffer) => (received += chunk.length))
  await once(child, 'close')
  return received
}

/** What a run cannot do without. */
export const spawnTrue = async (): Promise<void> => {
  await once(spawn('/bin/true', { stdio: 'ignore' }), 'exit')
}

/** proc_pid_stat(5) counts in these; the same on every Linux that there is. */
const MS_PER_TICK = 10

/** What a process has had of the processors, and what the children that it has waited for had, in milliseconds. */
const cpuOf = async (pid: number): Promise<{ own: number; children: number }> => {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  // The name in parentheses may hold anything; fields 14 to 17 are utime, stime, cutime, cstime.
  const [user = 0, system = 0, users = 0, systems = 0] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 15)
    .map(Number)
  return { own: (user + system) * MS_PER_TICK, children: (users + systems) * MS_PER_TICK }
}

/** Processor time of the programs that the launcher has started and that have ended, with their descendants, in milliseconds. */
export const cpuOfPrograms = async (): Promise<number> => (await cpuOf(launcherPid())).children

/** Of these processes together, with the children that they have waited for. */
export const cpuOfAll = async (pids: readonly number[]): Promise<number> =>
  (await Promise.all(pids.map(cpuOf))).reduce((sum, { own, children }) => sum + own + children, 0)

/** It and everything below it. */
export const treeOf = (pid: number): number[] => [pid, ...descendantsOf(pid).map((one) => one.pid)]
