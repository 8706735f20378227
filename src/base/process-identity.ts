import { readFileSync, readlinkSync } from 'node:fs'

/** One process of a host, also when it is gone: a pid alone is given to another some day. */
export interface ProcessIdentity {
  readonly pid: number
  /** Clock ticks between the start of the system and its own; `0` where there is no `/proc`. */
  readonly started: string
  /** The PID namespace that the pid is one of; `0` where there is none. */
  readonly namespace: string
}

/** What follows the name in `/proc/PID/stat`, which may hold anything (proc(5)): first the state, as the 20th the start. */
const statOf = (pid: number | 'self'): readonly string[] | null => {
  try {
    return readFileSync(`/proc/${pid}/stat`, 'latin1')
      .replace(/^.*\) /s, '')
      .split(' ')
  } catch {
    return null
  }
}

const namespaceOf = (): string => {
  try {
    return /\d+/.exec(readlinkSync('/proc/self/ns/pid'))?.[0] ?? '0'
  } catch {
    return '0'
  }
}

export const ownIdentity = (): ProcessIdentity => ({ pid: process.pid, started: statOf('self')?.[19] ?? '0', namespace: namespaceOf() })

/** `unknown`: it is of another PID namespace, into which we do not see. */
export const lifeOf = ({ pid, started, namespace }: ProcessIdentity): 'alive' | 'gone' | 'unknown' => {
  if (namespace !== namespaceOf()) return 'unknown'
  const stat = started === '0' ? null : statOf(pid)
  // A zombie does nothing any more.
  if (stat !== null) return stat[19] === started && stat[0] !== 'Z' ? 'alive' : 'gone'
  try {
    process.kill(pid, 0)
    return started === '0' ? 'alive' : 'gone'
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ESRCH' ? 'gone' : 'unknown'
  }
}
