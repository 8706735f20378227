import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'

import { descendantsOf } from '../src/process/descendant-tracker.ts'
import { launcherPid } from './launcher.ts'

/** Returns the number of bytes of a program's stdout, and discards the bytes. */
export const drain = async (file: string, argv: readonly string[]): Promise<number> => {
  const child = spawn(file, argv, { stdio: ['ignore', 'pipe', 'ignore'] })
  let received = 0
  child.stdout.on('data', (chunk: Buffer) => (received += chunk.length))
  await once(child, 'close')
  return received
}

/** Starts a process, which every run needs. */
export const spawnTrue = async (): Promise<void> => {
  await once(spawn('/bin/true', { stdio: 'ignore' }), 'exit')
}

/** The unit of proc_pid_stat(5). It is the same on every Linux. */
const MS_PER_TICK = 10

/** Processor time of a process, and of its children that have ended, in milliseconds. */
const cpuOf = async (pid: number): Promise<{ own: number; children: number }> => {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  // The name in parentheses may contain anything. Fields 14 to 17 are utime, stime, cutime and cstime.
  const [user = 0, system = 0, users = 0, systems = 0] = stat
    .slice(stat.lastIndexOf(')') + 2)
    .split(' ')
    .slice(11, 15)
    .map(Number)
  return { own: (user + system) * MS_PER_TICK, children: (users + systems) * MS_PER_TICK }
}

/** Processor time of the finished programs of the launcher and their descendants, in milliseconds. */
export const cpuOfPrograms = async (): Promise<number> => (await cpuOf(launcherPid())).children

/** Total processor time of these processes and of their finished children. */
export const cpuOfAll = async (pids: readonly number[]): Promise<number> =>
  (await Promise.all(pids.map(cpuOf))).reduce((sum, { own, children }) => sum + own + children, 0)

/** The process and all its descendants. */
export const treeOf = (pid: number): number[] => [pid, ...descendantsOf(pid).map((one) => one.pid)]
