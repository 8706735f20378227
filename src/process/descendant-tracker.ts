import { setTimeout as sleep } from 'node:timers/promises'
import { NEVER } from '../base/abort.ts'
import { birthOf, isLiving, statOf } from '../base/process-info.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import { CoalescingQueue } from '../base/wait-queue.ts'
import type { MarkSearch } from './run-mark.ts'
import { type Member, childrenOf, exists, inTurns, mayNotSignal, send } from './signals.ts'

/** How long the end of a run waits for a killed process that the kernel does not let go of. */
export const TREE_END_MS = 2_000
/** How often that is looked at. */
export const TREE_POLL_MS = 1
/** How often descendants are looked for and stopped before they are killed; each time finds only what was born since. */
const FREEZE_ROUNDS = 16
/** How long descendants are looked for; then the known ones are killed, so that the run ends in time. */
const FREEZE_MS = 1_000
/** The same after a program that has ended by itself: nobody waits for its death, and a busy machine takes longer to look. */
const SEARCH_MS = 2_500
/** How often, and after which pause, a process that hides its environment is looked at again before the run warns of it. */
export const HIDDEN_LOOKS = 4
const HIDDEN_LOOK_MS = 100
/** Descendants of one program that are looked at for those that left its group; two reads of /proc each. */
const MAX_DESCENDANTS = 1_024
/** Signals by which somebody asks for the end of a run. */
export const ENDS: readonly NodeJS.Signals[] = ['SIGTERM', 'SIGKILL', 'SIGINT', 'SIGHUP', 'SIGQUIT']

/** What descends from a process while its ancestors live, itself left out; at most `most`. */
export const descendantsOf = (ancestor: number, most?: number): Member[] => [...walkDescendants(ancestor, most)]

function* walkDescendants(ancestor: number, most = MAX_DESCENDANTS): Generator<Member> {
  const queue = [ancestor]
  for (const parent of queue)
    for (const pid of childrenOf(parent)) {
      // Bounded, so that a program that forks faster than we look cannot hold us here.
      if (queue.length >= most) return
      queue.push(pid)
      const born = birthOf(pid)
      if (born !== undefined) yield { pid, born }
    }
}

/** What the environment of a run's processes carries, and who looks for it. */
export interface RunMark {
  readonly text: string
  readonly search: Pick<MarkSearch, 'find' | 'share'>
  /** How many processes there had been before the run's own. */
  readonly forks: number | null
}

/** What one look for descendants came to. */
interface Found {
  /** Somebody who was not known before. */
  readonly fresh: boolean
  readonly whole: boolean
}

const stop = ({ pid, born }: Member): void => void (birthOf(pid) === born && send(pid, 'SIGSTOP'))

/**
 * A child that leads its own process group, and what descends from it. A descendant that made a group of its own is
 * found through its living ancestors, or by the run's mark in its environment (Linux). The group is signalled at once;
 * descendants outside of it are signalled when they are found, which takes several turns of the event loop.
 */
export class DescendantTracker {
  readonly #pid: number
  /** Null: its descendants need not be looked for. */
  readonly #mark: RunMark | null
  /** The runtime may tell us of its end only when its number is another's already. */
  readonly #born: string | undefined
  readonly #strays = new Map<number, Member>()
  /** Signals that descendants outside of the group were not sent yet. */
  readonly #due = new CoalescingQueue<NodeJS.Signals>({ deliver: async (signals) => this.#deliver(signals) })
  #end: Promise<void> | null = null
  /** A process that could not be looked at may be of the run. */
  #unseen = false
  /** At the last look a process did not show its environment. */
  #hidden = false
  /** Somebody waits for its end. */
  #asked = false
  #ended = false
  /** Its group has no members any more, and the number may be given to another process. */
  #isGroupGone = false
  /** Nothing of it is left, as the last look found. */
  #isEmpty = false

  constructor(pid: number, mark: RunMark | null = null) {
    if (!Number.isSafeInteger(pid) || pid <= 1) throw new RangeError(`not a child's pid: ${pid}`)
    this.#pid = pid
    this.#mark = mark
    this.#born = birthOf(pid)
  }

  /** The leader lives, as far as this system says so. */
  get leaderLives(): boolean {
    return !this.#ended && this.#born !== undefined && isLiving({ pid: this.#pid, born: this.#born })
  }

  /** Signals the group, and then every descendant that has left it. After `end` one that ends programs only says that somebody waits. */
  signal(signal: NodeJS.Signals): void {
    if (ENDS.includes(signal)) this.#asked = true
    if (this.#ended) return
    // SIGSTOP before SIGKILL: a stopped process forks nothing while the others are looked for.
    if (!this.#isAnother) send(-this.#pid, signal === 'SIGKILL' && this.#mark !== null ? 'SIGSTOP' : signal)
    if (this.#mark !== null) this.#due.ask(signal)
  }

  /** The leader has just been reaped. `end` must follow. */
  reaped(): void {
    this.#ended = true
    this.#lookAtGroup()
  }

  /** The kernel does not give the group's number away while the group has members. */
  #lookAtGroup(): void {
    this.#isGroupGone ||= this.#isAnother || !exists(-this.#pid)
  }

  /** After `reaped`: counts the processes of the group, and the marked ones outside of it, that live now. */
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

  /** Kills what is left of the group, and what has left it. */
  end(): void {
    if (this.#end !== null) return
    this.reaped()
    if (!this.#isGroupGone) {
      send(-this.#pid, 'SIGKILL')
      this.#unseen = mayNotSignal(-this.#pid)
    }
    this.#end = this.#mark === null || this.#isEmpty ? Promise.resolve() : this.#killRest()
  }

  /** After `end`: settles when all that was found is dead. False where that is not so, or nobody can say it. */
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

  /** Its number has been given to a process that is none of ours. */
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
    // `end` was called meanwhile, and kills the rest.
    if (this.#ended) return
    if (!this.#isAnother) send(-this.#pid, 'SIGKILL')
    await this.#signalOutside(['SIGKILL'])
  }

  /**
   * Repeats until no descendant is new: the kernel continues a stopped group that a death orphans (setpgid(2)). A process
   * that hides its environment may be about to show it, as bwrap(1) is while it starts a program.
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

  /** Stops the known descendants and looks until none is new, so that none forks between the last look and the kill. False: time was out. */
  async #freeze(deadline: () => number): Promise<boolean> {
    const over = this.#ended
    await this.#signalOutside(['SIGSTOP'])
    for (let round = 0; round < FREEZE_ROUNDS && performance.now() < deadline(); round++) {
      const { fresh, whole } = await this.#poll(stop)
      if ((whole && !fresh) || this.#ended !== over) return true
    }
    return false
  }

  /** Looks for descendants once. */
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

  /** Known descendants outside of the group; after `end` all known ones, since one may have joined the killed group meanwhile. */
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
