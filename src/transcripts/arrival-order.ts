/** How much may wait for what came earlier. */
export interface WaitingBounds {
  readonly count: number
  readonly bytes: number
}

interface Sized {
  readonly bytes: Uint8Array
}

/**
 * Gives out places in the order of arrival, and hands on what has ended in that order, whichever ends first. Where more waits
 * than may, the earliest that has not ended loses its place, and is handed on when it ends.
 */
export class ArrivalOrder<T extends Sized> {
  readonly #max: WaitingBounds
  /** Oldest first, and so the lowest place first. */
  readonly #open = new Set<number>()
  readonly #late = new Set<number>()
  readonly #waiting = new Map<number, T>()
  #bytes = 0
  #next = 1

  constructor(max: WaitingBounds) {
    this.#max = max
  }

  /** Those that have ended, and may not be handed on yet. */
  get waiting(): readonly T[] {
    return this.#before(Infinity).map(([, item]) => item)
  }

  arrive(): number {
    const place = this.#next++
    this.#open.add(place)
    return place
  }

  /** It has ended; null: there is nothing to hand on. Answers what may be handed on now, in order. */
  end(place: number, item: T | null): T[] {
    if (this.#late.delete(place)) return item === null ? [] : [item]
    if (!this.#open.delete(place)) throw new TypeError(`the place ${place} is not open`)
    if (item !== null) {
      this.#waiting.set(place, item)
      this.#bytes += item.bytes.length
    }
    const released = this.#release()
    while (this.#waiting.size > this.#max.count || this.#bytes > this.#max.bytes) {
      this.#makeLate()
      released.push(...this.#release())
    }
    return released
  }

  /** All that waits, in order: no earlier one will come. */
  takeAll(): T[] {
    while (this.#open.size > 0) this.#makeLate()
    return this.#release()
  }

  #makeLate(): void {
    const [first] = this.#open
    if (first === undefined) return
    this.#open.delete(first)
    this.#late.add(first)
  }

  /** Those that wait, with places below this one, in order. */
  #before(end: number): [number, T][] {
    return [...this.#waiting].filter(([place]) => place < end).sort(([one], [other]) => one - other)
  }

  #release(): T[] {
    const [first = Infinity] = this.#open
    const free = this.#before(first)
    for (const [place, item] of free) {
      this.#waiting.delete(place)
      this.#bytes -= item.bytes.length
    }
    return free.map(([, item]) => item)
  }
}
