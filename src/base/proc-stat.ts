import { readFileSync } from 'node:fs'
import { attempt } from './errors.ts'

/** The fields of proc_pid_stat(5) behind the name; empty when the process is gone, hidden, or this system has no /proc. */
export const statOf = (pid: number, proc = '/proc'): string[] => {
  try {
    const stat = readFileSync(`${proc}/${pid}/stat`, 'latin1')
    // The name in parentheses may itself hold blanks and parentheses.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  } catch {
    return []
  }
}

/** The moment a process began, in clock ticks since boot; undefined when it is gone or this system has no /proc. */
export const birthOf = (pid: number): string | undefined => statOf(pid)[19]

/**
 * The very process that began at that moment still lives; one that only waits to be reaped does not. While other threads of
 * it are dying it has its files and sockets, though its first thread is dead already.
 */
export const isLiving = ({ pid, born }: { readonly pid: number; readonly born: string }): boolean => {
  const stat = statOf(pid)
  const [state, threads] = [stat[0], Number(stat[17])]
  return stat[19] === born && ((state !== 'Z' && state !== 'X') || threads > 1)
}

/** Another one at each start of the system (random(4)); null where there is no /proc. */
export const bootId = (): string | null => attempt(() => readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim())
