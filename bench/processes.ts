import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFile } from 'node:fs/promises'

import { descendantsOf } from '../src/process/process-tree.ts'

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

/** What a process and the children that it has waited for have had of the processors, in milliseconds. */
const cpuOf = async (pid: number): Promise<number> => {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => '')
  // The name in parentheses may hold anything; fields 14 to 17 are utime, stime, cutime, cstime.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return fields.slice(11, 15).reduce((sum, ticks) => sum + Number(ticks), 0) * MS_PER_TICK
}

/** Of these processes together. */
export const cpuOfAll = async (pids: readonly number[]): Promise<number> =>
  (await Promise.all(pids.map(cpuOf))).reduce((sum, ms) => sum + ms, 0)

/** It and everything below it. */
export const treeOf = (pid: number): number[] => [pid, ...descendantsOf(pid).map((one) => one.pid)]
