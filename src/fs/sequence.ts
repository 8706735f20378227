import type { TimeSlice } from '../base/time-slices.ts'

/** Comparisons between two checks of the time: about 10 µs. */
const STEPS = 4_096

/** Searches a sequence in linear time (Knuth, Morris, Pratt). */
export class Sequence<T> {
  readonly #wanted: ArrayLike<T>
  /** For each prefix, the length of its longest border. */
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

  /** Calls `onPlace` for each match from `from`, without overlaps, until it returns false. */
  async each(all: ArrayLike<T>, from: number, share: TimeSlice, onPlace: (at: number) => boolean): Promise<void> {
    const state = { at: from, same: 0 }
    while (state.at < all.length) {
      const end = Math.min(all.length, state.at + STEPS)
      if (!this.#poll(all, state, end, onPlace)) return
      if (share.shouldYield) await share.yieldTurn()
    }
  }

  /** Returns the first match from `from`, or -1 for none. */
  async find(all: ArrayLike<T>, from: number, share: TimeSlice): Promise<number> {
    let place = -1
    await this.each(all, from, share, (at) => {
      place = at
      return false
    })
    return place
  }

  /** False if `onPlace` returned false. */
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
