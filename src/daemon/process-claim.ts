import { readFile } from 'node:fs/promises'

import { birthOf, bootId } from '../base/proc-stat.ts'

/** A process by its pid, and what tells it from a later one with the same pid. */
export interface ProcessClaim {
  readonly pid: number
  readonly token: string
  readonly started: string
}

/** Boot id and start time in clock ticks (proc(5)); empty where the system does not tell. */
const startOf = (pid: number): string => {
  const [boot, born] = [bootId(), birthOf(pid)]
  return boot === null || born === undefined ? '' : `${boot} ${born}`
}

export const claimOf = (pid: number, token: string): ProcessClaim => ({ pid, token, started: startOf(pid) })

/** True while that very process lives. */
export const isAlive = (claim: ProcessClaim): boolean => {
  try {
    process.kill(claim.pid, 0)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ESRCH') return false
  }
  return claim.started === '' || startOf(claim.pid) === claim.started
}

export const encodeClaim = ({ pid, token, started }: ProcessClaim): string => `${pid} ${token} ${started}\n`

/** Null where there is none, or none of ours. */
export const readClaim = async (path: string): Promise<ProcessClaim | null> => {
  const text = await readFile(path, 'utf8').catch(() => '')
  const [pid = '', token = '', ...started] = text.trim().split(' ')
  return /^[1-9][0-9]{0,9}$/.test(pid) && token !== '' ? { pid: Number(pid), token, started: started.join(' ') } : null
}
