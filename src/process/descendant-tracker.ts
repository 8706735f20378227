import { setTimeout as sleep } from 'node:timers/promises'
import { NEVER } from '../base/abort.ts'
import { birthOf, isLiving } from '../base/process-info.ts'
import { statOf } from '../base/process-stat.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import { CoalescingQueue } from '../base/wait-queue.ts'
import type { MarkSearch } from './run-mark.ts'
import { type Member, childrenOf, exists, inTurns, mayNotSignal, send } from './signals.ts'

/** How long the end of a run waits for a killed process that the kernel holds. */
export const TREE_END_MS = 2_000
export const TREE_POLL_MS = 1
/** Rounds of finding and stopping descendants before they are killed. Each finds only those born since the last. */
const FREEZE_ROUNDS = 16
/** How long descendants are searched. Then the known ones are killed, so that the run ends in time. */
const FREEZE_MS = 1_000
/** The same after a program that ended by itself. No client waits, and a busy machine is slow. */
const SEARCH_MS = 2_500
/** How often, and with which pause, a process that hides its environment is inspected again before the run warns. */
export const HIDDEN_LOOKS = 4
const HIDDEN_LOOK_MS = 100
/** Descendants that are checked for having left the group. Each costs two reads of /proc. */
const MAX_DESCENDANTS = 1_024
/** Signals that ask a run to end. */
export const ENDS: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGKILL', 'SIGINT', 'SIGHUP', 'SIGQUIT']

/** Living descendants of a process, without itself, up to `most`. */
export const descendantsOf = (ancestor: number, most?: number): Member[] => [...walkDescendants(ancestor, most)]

function* walkDescendants(ancestor: number, most = MAX_DESCENDANTS): Generator<Member> {
  const queue = [ancestor]
  for (const parent of queue)
    for (const pid of childrenOf(parent)) {
      // Bounded, so that a program that forks quickly cannot keep us busy.
      if (queue.length >= most) return
      queue.push(pid)
      const born = birthOf(pid)
      if (born !== undefined) yield { pid, born }
    }
}

/** The mark in the environment of a run's processes, and the search for it. */
export interface RunMark {
  readonly text: string
  readonly search: Pick<MarkSearch, 'find' | 'share'>
  /** Processes started since boot, before the run's own. */
  readonly forks: number | null
}

/** Result of one search for descendants. */
interface Found {
  /** Found a process that was not known. */
  readonly fresh: boolean
  readonly whole: boolean
}

const stop = ({ pid, born }: Member): void => void (birthOf(pid) === born && send(pid, 'SIGSTOP'))

/**
 * A child that leads its own process group, and its descendants. A descendant in another group is found through its living ancestors, or by
 * the run's mark in its environment (Linux). The group is signalled at once. Descendants outside of it are signalled when they are found,
 * which takes several turns of the event loop.
 */
export class DescendantTracker {
  readonly #pid: number
  /** Null if descendants need no search. */
  readonly #mark: RunMark | null
  /** Start time of the child. The runtime may report its end only after its PID was reused. */
  readonly #born: string | undefined
  readonly #strays = new Map<number, Member>()
  /** Signals not yet sent to descendants outside of the group. */
  readonly #due = new CoalescingQueue<NodeJS.Signals>({ deliver: async (signals) => this.#deliver(signals) })
  #end: Promise<void> | null = null
  /** A process that could not be inspected may belong to the run. */
  #unseen = false
  /** In the last search a process hid its environment. */
  #hidden = false
  /** A client waits for the end. */
  #asked = false
  #ended = false
  /** The group has no members, so its number may be reused. */
  #isGroupGone = false
  /** The last search found no living process. */
  #isEmpty = false

  constructor(pid: number, mark: RunMark | null = null) {
    if (!Number.isSafeInteger(pid) || pid <= 1) throw new RangeError(`not a child's pid: ${pid}`)
    this.#pid = pid
    this.#mark = mark
    this.#born = birthOf(pid)
  }

  /** True if the leader is known to live. */
  get leaderLives(): boolean {
    return !this.#ended && this.#born !== undefined && isLiving({ pid: this.#pid, born: this.#born })
  }

  /** Signals the group, then every descendant outside of it. After `end` a terminating signal only shortens the search. */
  signal(signal: NodeJS.Signals): void {
    if (ENDS.includes(signal)) this.#asked = true
    if (this.#ended) return
    // SIGSTOP precedes SIGKILL, because a stopped process cannot fork while others are searched.
    if (!this.#isAnother) send(-this.#pid, signal === 'SIGKILL' && this.#mark !== null ? 'SIGSTOP' : signal)
    if (this.#mark !== null) this.#due.ask(signal)
  }

  /** The leader was reaped. `end` must follow. */
  reaped(): void {
    this.#ended = true
    this.#lookAtGroup()
  }

  /** The kernel does not reuse the group's number while it has members. */
  #lookAtGroup(): void {
    this.#isGroupGone ||= this.#isAnother || !exists(-this.#pid)
  }

  /** Counts living processes of the group and marked ones outside of it. Call it after `reaped`. */
  async living(): Promise<number> {
    if (this.#mark === null || this.#born === undefined) return 0
    await this.#due.stop()
    this.#lookAtGroup()
    const { fresh, whole } = await this.#poll(() => undefined, this.#isGroupGone ? null : this.#pid)
    let count = 0
    for await (const one of this.#outside()) if (isLiving(one)) count++
    this.#isEmpty = this.#isGroupGone && whole && !fresh && !this.#hidden && count === 0
    return count
  }

  /** Kills the rest of the group and descendants outside of it. */
  end(): void {
    if (this.#end !== null) return
    this.reaped()
    if (!this.#isGroupGone) {
      send(-this.#pid, 'SIGKILL')
      this.#unseen = mayNotSignal(-this.#pid)
    }
    this.#end = this.#mark === null || this.#isEmpty ? Promise.resolve() : this.#killRest()
  }

  /** Resolves to true when all found processes are dead, or false if one lives or its state is unknown. Call it after `end`. */
  async gone(): Promise<boolean> {
    await this.#end
    const deadline = performance.now() + TREE_END_MS
    for await (const one of this.#outside())
      while (isLiving(one)) {
        if (performance.now() > deadline) return false
        await sleep(TREE_POLL_MS)
      }
    return !this.#unseen
  }

  /** The PID was reused by an unrelated process. */
  get #isAnother(): boolean {
    const born = birthOf(this.#pid)
    return born !== undefined && this.#born !== undefined && born !== this.#born
  }

  async #deliver(signals: readonly NodeJS.Signals[]): Promise<void> {
    if (signals.includes('SIGKILL')) return this.#kill()
    await this.#poll(() => undefined)
    await this.#signalOutside(signals)
  }

  async #kill(): Promise<void> {
    const deadline = performance.now() + FREEZE_MS
    await this.#freeze(() => deadline)
    // `end` was called meanwhile and kills the rest.
    if (this.#ended) return
    if (!this.#isAnother) send(-this.#pid, 'SIGKILL')
    await this.#signalOutside(['SIGKILL'])
  }

  /**
   * Repeats until no descendant is new, because the kernel continues a stopped group that a death orphans (setpgid(2)). A process that
   * hides its environment may soon show it, like bwrap(1) while it starts a program.
   */
  async #killRest(): Promise<void> {
    await this.#due.stop()
    const began = performance.now()
    const deadline = (): number => began + (this.#asked ? FREEZE_MS : SEARCH_MS)
    let again = 0
    for (;;) {
      const inTime = await this.#freeze(deadline)
      await this.#signalOutside(['SIGKILL'])
      this.#unseen ||= !inTime
      if (!inTime) break
      const { fresh, whole } = this.#strays.size > 0 ? await this.#poll(stop) : { fresh: false, whole: true }
      if (fresh || !whole) continue
      if (!this.#hidden || ++again > HIDDEN_LOOKS) break
      await sleep(HIDDEN_LOOK_MS)
    }
    this.#unseen ||= this.#hidden
  }

  /**
   * Stops known descendants until a search finds no new one, so that no descendant forks between the last search and the kill. False if the
   * time is up.
   */
  async #freeze(deadline: () => number): Promise<boolean> {
    const over = this.#ended
    await this.#signalOutside(['SIGSTOP'])
    for (let round = 0; round < FREEZE_ROUNDS && performance.now() < deadline();) {
      const { fresh, whole } = await this.#poll(stop)
      if (this.#ended !== over) return true
      if (fresh) round += 1
      else if (whole && (await this.#allStopped())) return true
      // A process inside execve(2) or fork(2) needs a moment.
      else await sleep(TREE_POLL_MS)
    }
    return false
  }

  /** A process that runs although it was sent SIGSTOP may be inside fork(2), and its child appears after the search. */
  async #allStopped(): Promise<boolean> {
    for await (const { pid } of this.#outside()) if (statOf(pid)[0] === 'R') return false
    return true
  }

  async #poll(onFresh: (member: Member) => void, group: number | null = null): Promise<Found> {
    const { text, search, forks } = this.#mark!
    let fresh = false
    const knows = ({ pid, born }: Member): boolean => this.#strays.get(pid)?.born === born
    const onFound = (member: Member): void => {
      if (knows(member)) return
      this.#strays.set(member.pid, member)
      fresh = true
      onFresh(member)
    }
    for await (const member of inTurns(this.#ended ? [] : walkDescendants(this.#pid), this.#share())) onFound(member)
    const leader = this.#born === undefined ? null : { pid: this.#pid, born: this.#born }
    const look = leader && (await search.find({ mark: text, leader, forks, group, knows, onFound }))
    this.#hidden = look?.hidden === true
    if (this.#ended && look === null) this.#unseen ||= this.#asked
    return { fresh, whole: look?.whole ?? true }
  }

  #share(): TimeSlice {
    return this.#mark!.search.share(NEVER)
  }

  /** Known descendants outside of the group. After `end` all known ones, because one may have joined the killed group. */
  async *#outside(): AsyncGenerator<Member> {
    if (this.#mark === null) return
    for await (const member of inTurns([...this.#strays.values()], this.#share())) {
      const stat = statOf(member.pid)
      if (stat[19] !== member.born) this.#strays.delete(member.pid)
      else if (this.#ended || Number(stat[2]) !== this.#pid) yield member
    }
  }

  async #signalOutside(signals: readonly NodeJS.Signals[]): Promise<void> {
    for await (const { pid } of this.#outside()) for (const signal of signals) send(pid, signal)
  }
}
