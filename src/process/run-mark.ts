import { readdirSync, readFileSync } from 'node:fs'

import { randomBytes } from '../identity/hash.ts'
import { statOf } from '../base/proc-stat.ts'
import type { Member } from './signals.ts'

/** Set for everything that a run starts, where nothing stronger than its process group holds it. */
export const MARK_VARIABLE = 'X0X_RUN'

/** What the marks of one daemon begin with. */
export const newMarkPrefix = (): string => Buffer.from(randomBytes(8)).toString('hex')

/** Where a look begins: the leader of a run, of which everything marked descends. */
export interface Leader extends Member {
  /** When it began, in milliseconds of `performance.now`. */
  readonly at: number
}

/** What a look at all processes has found. */
export interface Look {
  readonly marked: readonly Member[]
  /** One of our user that began meanwhile does not show its environment: it may be of the run. */
  readonly hidden: boolean
}

/** Numbers are given one after the other, and within so short a time not all of them. */
const SOON_MS = 500

/** The number that was given last, in our PID namespace; null where it is not told (proc_loadavg(5)). */
const lastPid = (): number | null => {
  const last = Number(readFileSync('/proc/loadavg', 'latin1').trim().split(' ')[4])
  return Number.isSafeInteger(last) ? last : null
}

/** True for the numbers that may have been given since the leader's. */
const isSince = ({ pid: first, at }: Leader): ((pid: number) => boolean) => {
  const last = performance.now() - at < SOON_MS ? lastPid() : null
  if (last === null) return () => true
  return first <= last ? (pid) => pid > first && pid <= last : (pid) => pid > first || pid <= last
}

const isOurUsers = (pid: number): boolean => {
  try {
    const user = /^Uid:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]
    return Number(user) === process.getuid?.()
  } catch {
    return false
  }
}

/**
 * Every living process with this mark, however it left its group and whoever its parent is. One that has changed its
 * environment is not found. Null where this system shows no processes.
 */
export const findMarked = (mark: string, leader: Leader): Look | null => {
  // Both ends: a stranger's variable may have such a text for its value, as QUERY_STRING has what anybody asks a web server.
  const variable = `\0${MARK_VARIABLE}=${mark}\0`
  let pids: number[]
  try {
    pids = readdirSync('/proc').map(Number).filter(Number.isSafeInteger).filter(isSince(leader))
  } catch {
    return null
  }
  const began = BigInt(leader.born)
  const marked: Member[] = []
  let hidden = false
  for (const pid of pids) {
    const stat = statOf(pid)
    const [state, born] = [stat[0], stat[19]]
    if (pid === leader.pid || born === undefined || state === 'Z' || state === 'X' || BigInt(born) < began) continue
    try {
      if (`\0${readFileSync(`/proc/${pid}/environ`, 'latin1')}`.includes(variable)) marked.push({ pid, born })
    } catch (error) {
      hidden ||= (error as NodeJS.ErrnoException).code === 'EACCES' && isOurUsers(pid)
    }
  }
  return { marked, hidden }
}
