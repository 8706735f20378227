import { readdirSync, readFileSync } from 'node:fs'

import { MAX_DESCENDANTS } from '../protocol/local-limits.ts'

/** A process by its number and the moment it began, so that a later one with the same number is not mistaken for it. */
interface Member {
  readonly pid: number
  /** Clock ticks since boot, field 22 of proc_pid_stat(5). */
  readonly born: string
}

/** Sends a signal to a process (pid) or a group (-pid); false when nobody is there or may be signalled. */
const send = (target: number, signal: NodeJS.Signals): boolean => {
  // 0, 1 and -1 would mean ourselves, init and everybody.
  if (!Number.isSafeInteger(target) || Math.abs(target) <= 1) throw new RangeError(`not a process to signal: ${target}`)
  try {
    return process.kill(target, signal)
  } catch {
    // ESRCH: gone already. EPERM: it became another user's (setuid); nothing we could do.
    return false
  }
}

/** The moment a process began, or undefined when it is gone or this system has no /proc. */
const birthOf = (pid: number): string | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    // The name in parentheses may itself hold blanks and parentheses.
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19]
  } catch {
    return undefined
  }
}

const childrenOf = (pid: number): number[] => {
  try {
    return readdirSync(`/proc/${pid}/task`).flatMap((thread) =>
      readFileSync(`/proc/${pid}/task/${thread}/children`, 'latin1').split(' ').filter(Boolean).map(Number),
    )
  } catch {
    return []
  }
}

/**
 * A child that leads its own process group, and what descends from it. A descendant that made a group
 * of its own is found through its living ancestors (Linux); one whose ancestors are all dead is not.
 */
export class ProcessTree {
  readonly #pid: number
  readonly #strays = new Map<number, Member>()
  #over = false

  constructor(pid: number) {
    if (!Number.isSafeInteger(pid) || pid <= 1) throw new RangeError(`not a child's pid: ${pid}`)
    this.#pid = pid
  }

  /** Signals the group and every descendant that has left it. Does nothing after `end`. */
  signal(signal: NodeJS.Signals): void {
    if (this.#over) return
    this.#remember()
    send(-this.#pid, signal)
    this.#signalStrays(signal)
  }

  /**
   * The leader has just been reaped: what is left of its group is killed, and the strays that were
   * signalled before. The kernel does not give the group's number away while the group has members.
   */
  end(): void {
    if (this.#over) return
    this.#over = true
    send(-this.#pid, 'SIGKILL')
    this.#signalStrays('SIGKILL')
    this.#strays.clear()
  }

  /** Bounded, so that a program that forks faster than we look cannot hold us here: its group is signalled whatever its size. */
  #remember(): void {
    const queue = [this.#pid]
    for (const parent of queue)
      for (const pid of childrenOf(parent)) {
        if (queue.length >= MAX_DESCENDANTS) return
        queue.push(pid)
        const born = birthOf(pid)
        if (born !== undefined) this.#strays.set(pid, { pid, born })
      }
  }

  #signalStrays(signal: NodeJS.Signals): void {
    for (const { pid, born } of this.#strays.values()) {
      if (birthOf(pid) !== born) this.#strays.delete(pid)
      else if (groupOf(pid) !== this.#pid) send(pid, signal)
    }
  }
}

const groupOf = (pid: number): number | undefined => {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1')
    return Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[2])
  } catch {
    return undefined
  }
}
