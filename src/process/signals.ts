import { readFileSync, readdirSync, readlinkSync } from 'node:fs'
import { attempt, errnoOf } from '../base/errors.ts'
import { birthOf } from '../base/process-info.ts'
import { statOf } from '../base/process-stat.ts'
import type { TimeSlice } from '../base/time-slices.ts'

/** A process by number and start time, so that a reused number is not mistaken for it. */
export interface Member {
  readonly pid: number
  /** Clock ticks since boot, field 22 of proc_pid_stat(5). */
  readonly born: string
}

/** How a process ended: a status or the number of a signal. */
export interface ExitStatus {
  readonly code: number | null
  readonly signal: number | null
}

/** Signals that a client may send. */
export const PROCESS_SIGNALS = ['SIGTERM', 'SIGKILL', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGSTOP', 'SIGCONT'] as const
export type ProcessSignal = (typeof PROCESS_SIGNALS)[number]

/** Sends a signal to a process (pid) or a group (-pid), or false if it is gone or may not be signalled. */
export const send = (target: number, signal: NodeJS.Signals): boolean => {
  // 0, 1 and -1 would mean this process's group, init and all processes.
  if (!Number.isSafeInteger(target) || Math.abs(target) <= 1) throw new RangeError(`not a process to signal: ${target}`)
  try {
    return process.kill(target, signal)
  } catch {
    // ESRCH: gone. EPERM: another user's (setuid), which is checked after a kill.
    return false
  }
}

/** Yields all items, and gives the event loop a turn when the time slice is used up. */
export async function* inTurns<T>(all: Iterable<T>, share: TimeSlice): AsyncGenerator<T> {
  for (const one of all) {
    if (share.shouldYield) await share.yieldTurn()
    yield one
  }
}

/** Sends the signals to all members. Finds all of them first, because descendants of an ended process could not be found. */
export const signalAll = async (all: Iterable<Member | null>, signals: readonly NodeJS.Signals[], share: TimeSlice): Promise<void> => {
  const members: Member[] = []
  for await (const member of inTurns(all, share)) if (member !== null) members.push(member)
  for await (const { pid, born } of inTurns(members, share)) if (birthOf(pid) === born) for (const signal of signals) send(pid, signal)
}

/** Why a process (pid) or group (-pid) cannot be signalled: `ESRCH` if it does not exist, or null if it can be. */
const signalProblem = (target: number): string | null => {
  try {
    process.kill(target, 0)
    return null
  } catch (error) {
    return errnoOf(error) ?? null
  }
}

/** True if the process belongs to another user (setuid), so that no signal reaches it. */
export const mayNotSignal = (target: number): boolean => signalProblem(target) === 'EPERM'

/** True if a process (pid) or a member of a group (-pid) exists, also if it was not reaped yet. */
export const exists = (target: number): boolean => signalProblem(target) !== 'ESRCH'

/** True for a child of `parent`, and for a process in this PID namespace. */
export const isChildOrIn = (pid: number, parent: number, namespace: string | undefined): boolean => {
  if (Number(statOf(pid)[1]) === parent) return true
  return namespace !== undefined && attempt(() => readlinkSync(`/proc/${pid}/ns/pid`)) === `pid:[${namespace}]`
}

/** Reads a number of proc_pid_status(5), or undefined if the process is gone or hidden. */
const statusNumber = (pid: number, line: RegExp, proc = '/proc'): number | undefined => {
  const [, digits] = line.exec(attempt(() => readFileSync(`${proc}/${pid}/status`, 'latin1')) ?? '') ?? []
  return digits === undefined ? undefined : Number(digits)
}

/** True for a process of our own user, or false if it is gone. */
export const isOurUsers = (pid: number, proc = '/proc'): boolean => {
  const user = statusNumber(pid, /^Uid:\s*(\d+)/m, proc)
  return user !== undefined && user === process.getuid?.()
}

/** The process of a thread. The thread's own number if it is gone. */
export const processOf = (thread: number): number => statusNumber(thread, /^Tgid:\s*(\d+)$/m) ?? thread

/** Process name as the kernel stores it: at most 15 bytes. */
export const nameOf = (pid: number): string | null => attempt(() => readFileSync(`/proc/${pid}/comm`, 'latin1').trimEnd())

export const childrenOf = (pid: number): number[] =>
  attempt(() =>
    readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
    ),
  ) ?? []
