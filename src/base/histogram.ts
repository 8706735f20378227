/** As a snapshot shows it: how many were at most so large, each with all that are smaller; `+Inf` is all of them. */
export interface HistogramSnapshot {
  readonly buckets: Readonly<Record<string, number>>
  readonly sum: number
}

/** How often something was how large; never reset while the process lives. */
export class Histogram {
  readonly #bounds: readonly number[]
  /** By bound, and last what is beyond all of them. */
  readonly #counts: number[]
  #sum = 0

  /** `bounds`: ascending. */
  constructor(bounds: readonly number[]) {
    this.#bounds = bounds
    this.#counts = [...bounds, Infinity].map(() => 0)
  }

  add(value: number): void {
    const at = this.#bounds.findIndex((bound) => value <= bound)
    this.#counts[at === -1 ? this.#bounds.length : at]! += 1
    this.#sum += value
  }

  snapshot(): HistogramSnapshot {
    let all = 0
    const buckets = this.#counts.map((count, at) => [String(this.#bounds[at] ?? '+Inf'), (all += count)] as const)
    return { buckets: Object.fromEntries(buckets), sum: this.#sum }
  }
}
