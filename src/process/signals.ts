import { readFileSync, readdirSync, readlinkSync } from 'node:fs'
import { attempt, errnoOf } from '../base/errors.ts'
import { birthOf, statOf } from '../base/process-info.ts'
import type { TimeSlice } from '../base/time-slices.ts'

/** A process by its number and the moment it began, so that a later one with the same number is not mistaken for it. */
export interface Member {
  readonly pid: number
  /** Clock ticks since boot, field 22 of proc_pid_stat(5). */
  readonly born: string
}

/** How a process ended: a status, or the number of the signal that ended it. */
export interface ExitStatus {
  readonly code: number | null
  readonly signal: number | null
}

/** What may be said to a program. */
export const PROCESS_SIGNALS = ['SIGTERM', 'SIGKILL', 'SIGINT', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2', 'SIGSTOP', 'SIGCONT'] as const
export type ProcessSignal = (typeof PROCESS_SIGNALS)[number]

/** Sends a signal to a process (pid) or a group (-pid); false when nobody is there or may be signalled. */
export const send = (target: number, signal: NodeJS.Signals): boolean => {
  // 0, 1 and -1 would mean ourselves, init and everybody.
  if (!Number.isSafeInteger(target) || Math.abs(target) <= 1) throw new RangeError(`not a process to signal: ${target}`)
  try {
    return process.kill(target, signal)
  } catch {
    // ESRCH: gone already. EPERM: it became another user's (setuid), which whoever kills looks at afterwards.
    return false
  }
}

/** Yields all of them, and gives the event loop a turn whenever the time of this one is used up. */
export async function* inTurns<T>(all: Iterable<T>, share: TimeSlice): AsyncGenerator<T> {
  for (const one of all) {
    if (share.shouldYield) await share.yieldTurn()
    yield one
  }
}

/** Sends the signals to all members. All are found before the first is signalled: its descendants could not be found after its end. */
export const signalAll = async (all: Iterable<Member | null>, signals: readonly NodeJS.Signals[], share: TimeSlice): Promise<void> => {
  const members: Member[] = []
  for await (const member of inTurns(all, share)) if (member !== null) members.push(member)
  for await (const { pid, born } of inTurns(members, share)) if (birthOf(pid) === born) for (const signal of signals) send(pid, signal)
}

/** Why no signal reaches a process (pid) or a group (-pid): `ESRCH` means that nothing has this number; null means that it can be signalled. */
const signalProblem = (target: number): string | null => {
  try {
    process.kill(target, 0)
    return null
  } catch (error) {
    return errnoOf(error) ?? null
  }
}

/** True where somebody is there, and is another user's by now (setuid): no signal of ours reaches it. */
export const mayNotSignal = (target: number): boolean => signalProblem(target) === 'EPERM'

/** A process (pid) or a member of a group (-pid) exists; one that was not reaped yet counts as well. */
export const exists = (target: number): boolean => signalProblem(target) !== 'ESRCH'

/** True for a child of this process, and for one whose PID namespace has this number. */
export const isChildOrIn = (pid: number, parent: number, namespace: string | undefined): boolean => {
  if (Number(statOf(pid)[1]) === parent) return true
  return namespace !== undefined && attempt(() => readlinkSync(`/proc/${pid}/ns/pid`)) === `pid:[${namespace}]`
}

/** The number in a line of proc_pid_status(5); undefined when the process is gone or hidden. */
const statusNumber = (pid: number, line: RegExp, proc = '/proc'): number | undefined => {
  const [, digits] = line.exec(attempt(() => readFileSync(`${proc}/${pid}/status`, 'latin1')) ?? '') ?? []
  return digits === undefined ? undefined : Number(digits)
}

/** True for a process of our own user; false where it is gone. */
export const isOurUsers = (pid: number, proc = '/proc'): boolean => {
  const user = statusNumber(pid, /^Uid:\s*(\d+)/m, proc)
  return user !== undefined && user === process.getuid?.()
}

/** The process that a thread belongs to; the thread's own number where it is gone. */
export const processOf = (thread: number): number => statusNumber(thread, /^Tgid:\s*(\d+)$/m) ?? thread

/** The name of a process as the kernel keeps it: at most 15 bytes. */
export const nameOf = (pid: number): string | null => attempt(() => readFileSync(`/proc/${pid}/comm`, 'latin1').trimEnd())

export const childrenOf = (pid: number): number[] =>
  attempt(() =>
    readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
    ),
  ) ?? []
