import { readFileSync } from 'node:fs'

/** The fields of proc_pid_stat(5) after the name. Empty if the process is gone or hidden, or if the system has no /proc. */
export const statOf = (pid: number, proc = '/proc'): string[] => {
  try {
    const stat = readFileSync(`${proc}/${pid}/stat`, 'latin1')
    // The name in parentheses may itself hold blanks and parentheses.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  } catch {
    return []
  }
}
