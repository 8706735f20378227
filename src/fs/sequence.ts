import type { TimeSlice } from '../base/time-slices.ts'

/** Things that are compared between two looks at the clock: some ten microseconds. */
const STEPS = 4_096

/** Things in a row that are looked for in others: takes a step per thing, whatever they are (Knuth, Morris, Pratt). */
export class Sequence<T> {
  readonly #wanted: ArrayLike<T>
  /** How much of the beginning stands again at the end of each beginning. */
  readonly #again: Int32Array

  constructor(wanted: ArrayLike<T>) {
    this.#wanted = wanted
    const again = new Int32Array(wanted.length)
    for (let at = 1, same = 0; at < wanted.length; at++) {
      while (same > 0 && wanted[at] !== wanted[same]) same = again[same - 1]!
      if (wanted[at] === wanted[same]) same += 1
      again[at] = same
    }
    this.#again = again
  }

  get length(): number {
    return this.#wanted.length
  }

  /** Calls `onPlace` with each place from `from` on, without overlaps, until it answers false. */
  async each(all: ArrayLike<T>, from: number, share: TimeSlice, onPlace: (at: number) => boolean): Promise<void> {
    const state = { at: from, same: 0 }
    while (state.at < all.length) {
      const end = Math.min(all.length, state.at + STEPS)
      if (!this.#poll(all, state, end, onPlace)) return
      if (share.shouldYield) await share.yieldTurn()
    }
  }

  /** The first place from `from` on; -1 for none. */
  async find(all: ArrayLike<T>, from: number, share: TimeSlice): Promise<number> {
    let place = -1
    await this.each(all, from, share, (at) => {
      place = at
      return false
    })
    return place
  }

  /** False: `onPlace` answered so. */
  #poll(all: ArrayLike<T>, state: { at: number; same: number }, end: number, onPlace: (at: number) => boolean): boolean {
    const [wanted, again] = [this.#wanted, this.#again]
    let { at, same } = state
    for (; at < end; at++) {
      while (same > 0 && all[at] !== wanted[same]) same = again[same - 1]!
      if (all[at] === wanted[same]) same += 1
      if (same !== wanted.length) continue
      if (!onPlace(at - same + 1)) return false
      same = 0
    }
    state.at = at
    state.same = same
    return true
  }
}
