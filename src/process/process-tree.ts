import { setTimeout as sleep } from 'node:timers/promises'
import { NEVER } from '../base/abort.ts'
import type { TimeSlice, TimeSlicer } from '../base/time-slices.ts'
import { CoalescingQueue } from '../base/wait-queue.ts'
import type { Containment } from '../protocol/reasons.ts'
import type { CgroupLeaf } from './cgroups.ts'
import type { PidNamespace } from './pid-namespace.ts'
import { ENDS, DescendantTracker, type RunMark } from './descendant-tracker.ts'
import { type ProcessSignal, mayNotSignal, send, signalAll } from './signals.ts'

/** How long left-behind processes may take to end by themselves before they are killed. */
export const LEFT_BEHIND_MS = 200
const LEFT_BEHIND_LOOK_MS = 10

export interface ProcessTreeInit {
  readonly containment: Containment
  /** Control group that holds or limits the run, or null if absent. */
  readonly leaf: CgroupLeaf | null
  /** Mark in the environment of its processes, or null if they need no search. */
  readonly mark: RunMark | null
  /** Divides signals to many processes into turns of the event loop. */
  readonly sharing: TimeSlicer
  /** Called when the daemon entered the control group and could not leave it. */
  onStuck(): void
}

/** All processes of one run. */
export class ProcessTree {
  readonly #init: ProcessTreeInit
  #tracker: DescendantTracker | null = null
  #pid = 0
  #namespace: PidNamespace | null = null
  #ended = false
  #mayLeak = false
  /** A client asked for the end of the run. */
  #asked = false
  #leftBehind = 0
  /** Signals not yet sent to members outside of the process group; sending takes several turns of the event loop. */
  readonly #due = new CoalescingQueue<NodeJS.Signals>({ deliver: async (signals) => this.#signalOutside(signals) })
  readonly #share: TimeSlice

  constructor(init: ProcessTreeInit) {
    this.#init = init
    this.#share = init.sharing.share(NEVER)
  }

  get containment(): Containment {
    return this.#init.containment
  }

  get mark(): string | null {
    return this.#init.mark?.text ?? null
  }

  /** The child lives and cannot be signalled. */
  get refusesSignals(): boolean {
    return this.leaderLives && mayNotSignal(this.#pid)
  }

  get leaderLives(): boolean {
    return this.#tracker?.leaderLives === true
  }

  /** After `end`: a process could not be killed or inspected. */
  get mayLeak(): boolean {
    return this.#mayLeak
  }

  /**
   * After `end`: number of processes that a program left behind when it ended by itself, and that were killed. Always 0 for a PID
   * namespace, whose processes the kernel kills together with the program, and without /proc.
   */
  get leftBehind(): number {
    return this.#leftBehind
  }

  /** Runs a synchronous spawn inside. */
  enter<T>(spawn: () => T): T {
    const { leaf, onStuck } = this.#init
    if (leaf === null) return spawn()
    try {
      return leaf.enter(spawn)
    } finally {
      if (leaf.isStuck) onStuck()
    }
  }

  /** Takes over the child that `enter` started, which leads its own group. Throws if it cannot be held or limited. */
  adopt(pid: number, namespace: PidNamespace | null): void {
    this.#pid = pid
    this.#tracker = new DescendantTracker(pid, this.#init.mark)
    this.#namespace = namespace
    const { leaf } = this.#init
    // `confine` would limit our own process.
    if (leaf?.isStuck === true) throw new Error('this process cannot leave its control group again')
    leaf?.confine()
  }

  /** Signals everything inside. After the child was reaped, it only shortens the search for left-behind processes. */
  signal(signal: ProcessSignal): void {
    const { leaf, containment } = this.#init
    if (this.#tracker === null) return
    this.#asked ||= ENDS.includes(signal)
    if (this.#ended) return this.#tracker.signal(signal)
    if (signal === 'SIGKILL') {
      leaf?.kill()
      this.#namespace?.kill()
      this.#tracker.signal(signal)
    } else if (this.#namespace !== null) this.#namespace.signal(signal)
    else if (leaf !== null && containment === 'cgroup') {
      send(-this.#pid, signal)
      this.#due.ask(signal)
    } else this.#tracker.signal(signal)
    // A stopped process acts on other signals only after SIGCONT.
    if (signal === 'SIGTERM' || signal === 'SIGHUP') this.signal('SIGCONT')
  }

  async #signalOutside(signals: readonly NodeJS.Signals[]): Promise<void> {
    const { leaf } = this.#init
    if (leaf !== null && !this.#ended) await signalAll(leaf.outside(this.#pid), signals, this.#share)
  }

  /** Call it when the child was reaped or never existed: kills the rest and resolves when it is dead. */
  async end(): Promise<void> {
    const { leaf } = this.#init
    this.#ended = true
    this.#tracker?.reaped()
    this.#leftBehind = await this.#countLeftBehind()
    this.#tracker?.end()
    const ended = [await this.#namespace?.end(), await leaf?.end(), this.containment === 'group' ? await this.#tracker?.gone() : true]
    this.#mayLeak = ended.includes(false)
  }

  /** Waits for a moment, because children of a program often end just after it. */
  async #countLeftBehind(): Promise<number> {
    const { leaf, containment } = this.#init
    const holder = containment === 'cgroup' ? leaf : containment === 'group' ? this.#tracker : null
    const deadline = performance.now() + LEFT_BEHIND_MS
    if (holder === null) return 0
    while (!this.#asked) {
      const count = await holder.living()
      if (count === 0 || performance.now() >= deadline) return this.#asked ? 0 : count
      await sleep(LEFT_BEHIND_LOOK_MS)
    }
    return 0
  }
}
