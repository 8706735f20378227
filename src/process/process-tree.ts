import { MAX_DESCENDANTS } from '../protocol/local-limits.ts'
import { birthOf } from '../base/proc-stat.ts'
import { childrenOf, groupOf, send, type Member } from './signals.ts'

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
 * A child that leads its own process group, and what descends from it. A descendant that made a group
 * of its own is found through its living ancestors (Linux); one whose ancestors are all dead is not.
 */
export class ProcessTree {
  readonly #pid: number
  /** The runtime may tell us of its end only when its number is another's already. */
  readonly #born: string | undefined
  readonly #strays = new Map<number, Member>()
  #left = false
  #over = false

  constructor(pid: number) {
    if (!Number.isSafeInteger(pid) || pid <= 1) throw new RangeError(`not a child's pid: ${pid}`)
    this.#pid = pid
    this.#born = birthOf(pid)
  }

  /** A descendant was seen that had left the group. */
  get wasLeft(): boolean {
    return this.#left
  }

  /** Signals the group and every descendant that has left it. Does nothing after `end`. */
  signal(signal: NodeJS.Signals): void {
    if (this.#over) return
    if (this.#isAnother) return this.#signalStrays(signal)
    for (const member of descendantsOf(this.#pid)) this.#strays.set(member.pid, member)
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
    if (!this.#isAnother) send(-this.#pid, 'SIGKILL')
    this.#signalStrays('SIGKILL')
    this.#strays.clear()
  }

  /** Its number has been given to a process that is none of ours. */
  get #isAnother(): boolean {
    const born = birthOf(this.#pid)
    return born !== undefined && this.#born !== undefined && born !== this.#born
  }

  #signalStrays(signal: NodeJS.Signals): void {
    for (const { pid, born } of this.#strays.values()) {
      if (birthOf(pid) !== born) this.#strays.delete(pid)
      else if (groupOf(pid) !== this.#pid) {
        this.#left = true
        send(pid, signal)
      }
    }
  }
}
