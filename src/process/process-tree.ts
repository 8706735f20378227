import { setTimeout as sleep } from 'node:timers/promises'

import { birthOf, isLiving } from '../base/proc-stat.ts'
import { CELL_END_MS, CELL_LOOK_MS, FREEZE_ROUNDS } from '../protocol/containment-limits.ts'
import { MAX_DESCENDANTS } from '../protocol/local-limits.ts'
import { findMarked, type Leader } from './run-mark.ts'
import { childrenOf, groupOf, mayNotSignal, send, type Member } from './signals.ts'

/** What descends from a process while its ancestors live, itself left out; at most `most`. */
export const descendantsOf = (ancestor: number, most = MAX_DESCENDANTS): Member[] => {
  const found: Member[] = []
  const queue = [ancestor]
  for (const parent of queue)
    for (const pid of childrenOf(parent)) {
      // Bounded, so that a program that forks faster than we look cannot hold us here.
      if (queue.length >= most) return found
      queue.push(pid)
      const born = birthOf(pid)
      if (born !== undefined) found.push({ pid, born })
    }
  return found
}

/**
 * A child that leads its own process group, and what descends from it. A descendant that made a group of its own is
 * found through its living ancestors, or by the run's mark in its environment (Linux).
 */
export class ProcessTree {
  readonly #pid: number
  /** Null: its descendants cannot be looked for, or need not be. */
  readonly #mark: string | null
  readonly #at = performance.now()
  /** The runtime may tell us of its end only when its number is another's already. */
  readonly #born: string | undefined
  readonly #strays = new Map<number, Member>()
  /** Something that cannot be looked at may be of the run. */
  #unseen = false
  #asked = false
  #over = false

  constructor(pid: number, mark: string | null = null) {
    if (!Number.isSafeInteger(pid) || pid <= 1) throw new RangeError(`not a child's pid: ${pid}`)
    this.#pid = pid
    this.#mark = mark
    this.#born = birthOf(pid)
  }

  /** The leader lives, as far as this system says so. */
  get leaderLives(): boolean {
    return !this.#over && this.#born !== undefined && isLiving({ pid: this.#pid, born: this.#born })
  }

  /** Signals the group and every descendant that has left it. Does nothing after `end`. */
  signal(signal: NodeJS.Signals): void {
    if (this.#over) return
    this.#asked = true
    if (this.#isAnother) return this.#signalStrays(signal)
    if (signal === 'SIGKILL') this.#freeze()
    else this.#look()
    send(-this.#pid, signal)
    this.#signalStrays(signal)
  }

  /**
   * The leader has just been reaped: what is left of its group is killed, and what has left it. The kernel does not give
   * the group's number away while the group has members.
   */
  end(): void {
    if (this.#over) return
    this.#over = true
    if (!this.#isAnother) {
      send(-this.#pid, 'SIGKILL')
      this.#unseen = mayNotSignal(-this.#pid)
    }
    this.#freeze()
    this.#signalStrays('SIGKILL')
  }

  /** After `end`: settles when all that was found is dead. False where that is not so, or nobody can say it. */
  async gone(): Promise<boolean> {
    const deadline = performance.now() + CELL_END_MS
    while ([...this.#strays.values()].some((one) => groupOf(one.pid) !== this.#pid && isLiving(one))) {
      if (performance.now() > deadline) return false
      await sleep(CELL_LOOK_MS)
    }
    return !this.#unseen
  }

  /** Its number has been given to a process that is none of ours. */
  get #isAnother(): boolean {
    const born = birthOf(this.#pid)
    return born !== undefined && this.#born !== undefined && born !== this.#born
  }

  /** Finds descendants; answers those that are new. */
  #look(): Member[] {
    const found = this.#over ? [] : descendantsOf(this.#pid)
    if (this.#mark !== null && this.#born !== undefined) {
      const look = findMarked(this.#mark, { pid: this.#pid, born: this.#born, at: this.#at } satisfies Leader)
      found.push(...(look?.marked ?? []))
      if (this.#over) this.#unseen ||= look === null ? this.#asked : look.hidden
    } else if (this.#over) this.#unseen ||= this.#asked
    const fresh = found.filter(({ pid, born }) => this.#strays.get(pid)?.born !== born)
    for (const member of fresh) this.#strays.set(member.pid, member)
    return fresh
  }

  /** Looks until nobody is new: what is stopped starts nothing between a look and the kill. */
  #freeze(): void {
    for (let round = 0; round < FREEZE_ROUNDS; round++) {
      const fresh = this.#look()
      if (fresh.length === 0) return
      for (const { pid, born } of fresh) if (birthOf(pid) === born) send(pid, 'SIGSTOP')
    }
    this.#unseen = true
  }

  #signalStrays(signal: NodeJS.Signals): void {
    for (const { pid, born } of this.#strays.values()) {
      if (birthOf(pid) !== born) this.#strays.delete(pid)
      else if (groupOf(pid) !== this.#pid) send(pid, signal)
    }
  }
}
