export interface Summary {
  n: number
  median: number
  /** Missing in old results. */
  p95?: number
  p99: number
  min: number
}

const quantile = (sorted: number[], q: number): number => sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))]!

/** Summarizes at least one sample. */
export const summarize = (samples: readonly number[]): Summary => {
  if (samples.length === 0) throw new RangeError('no samples')
  const sorted = samples.toSorted((a, b) => a - b)
  return { n: sorted.length, median: quantile(sorted, 0.5), p95: quantile(sorted, 0.95), p99: quantile(sorted, 0.99), min: sorted[0]! }
}

/** Milliseconds that one call took. */
export const timed = async (call: () => Promise<unknown>): Promise<number> => {
  const start = performance.now()
  await call()
  return performance.now() - start
}

/**
 * Runs the contenders in turn (A B C A B C …), so that a slowdown of the machine affects all of them.
 * Discards the first round as a warm-up, and excludes `afterEach` from the times.
 */
export const interleaved = async <K extends string>(
  rounds: number,
  contenders: Record<K, () => Promise<unknown>>,
  afterEach?: () => Promise<unknown>,
): Promise<Record<K, Summary>> => {
  const samples = new Map<K, number[]>()
  const entries = Object.entries(contenders) as [K, () => Promise<unknown>][]
  for (let round = 0; round <= rounds; round++) {
    for (const [name, call] of entries) {
      const took = await timed(call)
      await afterEach?.()
      if (round > 0) samples.set(name, [...(samples.get(name) ?? []), took])
    }
  }
  return Object.fromEntries(entries.map(([name]) => [name, summarize(samples.get(name)!)])) as Record<K, Summary>
}
