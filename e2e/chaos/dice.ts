/**
 * Pseudorandom decisions from one seed (mulberry32). The scheduler still varies, so a seed repeats the plan of a test but not its exact
 * course.
 */
export class Dice {
  #state: number

  constructor(seed: number) {
    this.#state = seed >>> 0
  }

  /** From 0 up to but excluding 1. */
  roll(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0
    let mixed = this.#state
    mixed = Math.imul(mixed ^ (mixed >>> 15), mixed | 1)
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
  }

  /** A whole number, both bounds included. */
  between(least: number, most: number): number {
    return least + Math.floor(this.roll() * (most - least + 1))
  }

  chance(probability: number): boolean {
    return this.roll() < probability
  }

  /** One item, or undefined if there are no items. */
  pick<T>(from: readonly T[]): T | undefined {
    return from[this.between(0, from.length - 1)]
  }

  shuffled<T>(items: readonly T[]): T[] {
    return items
      .map((item) => ({ item, at: this.roll() }))
      .toSorted((a, b) => a.at - b.at)
      .map(({ item }) => item)
  }
}
