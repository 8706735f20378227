import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { attempt } from '../base/errors.ts'

/** What the kernel says of the numbers that it has given to processes and threads. */
export interface PidNumbers {
  /** The number that was given last, in our PID namespace (proc_loadavg(5)). */
  readonly last: number
  /** Processes and threads that live. */
  readonly living: number
  /** Processes and threads that were started since boot (proc_stat(5)). */
  readonly forks: number
  /** Numbers are smaller (proc_sys_kernel(5)). */
  readonly max: number
}

/** Numbers below are not given again when the kernel begins anew (RESERVED_PIDS). */
const RESERVED = 300

const count = (text: string | undefined): number => {
  const number = Number(text)
  if (text === undefined || !Number.isSafeInteger(number)) throw new RangeError(`not a number: ${text}`)
  return number
}

/** Processes and threads that were started since boot; null where it is not told. */
export const readForks = (proc = '/proc'): number | null =>
  attempt(() => count(/^processes (\d+)$/m.exec(readFileSync(join(proc, 'stat'), 'latin1'))?.[1]))

/** Null where this system does not say it. */
export const readPidNumbers = (proc = '/proc'): PidNumbers | null => {
  const forks = readForks(proc)
  if (forks === null) return null
  return attempt(() => {
    const [, , , entities, last] = readFileSync(join(proc, 'loadavg'), 'latin1').trim().split(' ')
    const max = readFileSync(join(proc, 'sys/kernel/pid_max'), 'latin1').trim()
    return { last: count(last), living: count(entities?.split('/')[1]), forks, max: count(max) }
  })
}

/**
 * True for the numbers that may have been given since a process got its own, when there had been `forks`. Numbers are
 * given one after the other, those in use left out: while there have been fewer than there are, all that is new lies
 * between that number and the last. (A start that is refused late uses a number up and is not counted; who plays on that
 * could as well take the mark out of its environment.)
 */
export const givenSince = (first: number, forks: number | null, now: PidNumbers | null): ((pid: number) => boolean) => {
  if (now === null || forks === null || now.forks - forks + now.living >= now.max - RESERVED) return () => true
  const { last } = now
  return first <= last ? (pid) => pid > first && pid <= last : (pid) => pid > first || pid <= last
}
