import { birthOf } from '../base/proc-stat.ts'
import type { TimeShare } from '../base/time-sharing.ts'
import { send, type Member } from './signals.ts'

/** Signals that are still to be delivered: each once, as it counts in the kernel, in the order of their last asking. */
export class DueSignals {
  readonly #deliver: (signals: readonly NodeJS.Signals[]) => Promise<void>
  readonly #due = new Set<NodeJS.Signals>()
  #work: Promise<void> | null = null

  /** `deliver` is called with what was asked for in one turn together, and not again before it is done. */
  constructor(components: { deliver: (signals: readonly NodeJS.Signals[]) => Promise<void> }) {
    this.#deliver = components.deliver
  }

  ask(signal: NodeJS.Signals): void {
    this.#due.delete(signal)
    this.#due.add(signal)
    this.#work ??= this.#run()
  }

  /** What is still due is not delivered; settles when nothing is under way. */
  async stop(): Promise<void> {
    this.#due.clear()
    await this.#work
  }

  async #run(): Promise<void> {
    await Promise.resolve()
    while (this.#due.size > 0) {
      const signals = [...this.#due]
      this.#due.clear()
      await this.#deliver(signals)
    }
    this.#work = null
  }
}

/** The same, and the event loop goes round in between. */
export async function* inTurns<T>(all: Iterable<T>, share: TimeShare): AsyncGenerator<T> {
  for (const one of all) {
    if (share.due) await share.turn()
    yield one
  }
}

/** Signals all, who are looked for first: who is told may end, and those below him are not found any more. */
export const signalAll = async (all: Iterable<Member | null>, signals: readonly NodeJS.Signals[], share: TimeShare): Promise<void> => {
  const members: Member[] = []
  for await (const member of inTurns(all, share)) if (member !== null) members.push(member)
  for await (const { pid, born } of inTurns(members, share)) if (birthOf(pid) === born) for (const signal of signals) send(pid, signal)
}
