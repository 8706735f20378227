/** A histogram at one moment: for each bound the number of values up to it, cumulative; `+Inf` counts all. */
export interface HistogramSnapshot {
  readonly buckets: Readonly<Record<string, number>>
  readonly sum: number
}

/** Counts values by size. It is never reset while the process lives. */
export class Histogram {
  readonly #bounds: readonly number[]
  /** Counts by bound. The last one counts values above all bounds. */
  readonly #counts: number[]
  #sum = 0

  /** `bounds` must be ascending. */
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

/** Content type of Prometheus' text format, version 0.0.4 (prometheus.io, "Exposition formats"). */
export const METRICS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/** One number of a metric family. Labels have few, known values: never a path, an argv, an ID, or a name that a client gave. */
export interface Sample {
  readonly labels?: Readonly<Record<string, string>>
  readonly value: number
  /** For a histogram: `_bucket`, `_sum` or `_count`. */
  readonly suffix?: string
}

/** A metric with its samples. No metrics library is used, because its registry would be a second set of counters. */
export interface Family {
  readonly name: string
  readonly type: 'counter' | 'gauge' | 'histogram'
  readonly help: string
  readonly samples: readonly Sample[]
}

export interface Metric<Facts> extends Omit<Family, 'samples'> {
  readonly samples: (facts: Facts) => readonly Sample[]
}

export const familiesOf = <Facts>(metrics: readonly Metric<Facts>[], facts: Facts): Family[] =>
  metrics.map(({ name, type, help, samples }) => ({ name, type, help, samples: samples(facts) }))

export const counterMetrics = <Facts, Table extends Readonly<Record<string, string>>>(
  prefix: string,
  table: Table,
  of: (facts: Facts) => Readonly<Record<keyof Table, number>>,
): Metric<Facts>[] =>
  Object.entries(table).map(([name, help]) => ({
    name: `${prefix}_${name}_total`,
    type: 'counter',
    help,
    samples: (facts) => [{ value: of(facts)[name] ?? 0 }],
  }))

const numbers =
  (type: 'counter' | 'gauge') =>
  <Facts>(name: string, help: string, of: (facts: Facts) => number | boolean | readonly Sample[]): Metric<Facts> => ({
    name,
    type,
    help,
    samples: (facts) => {
      const value = of(facts)
      return typeof value === 'object' ? value : [{ value: Number(value) }]
    },
  })

/** A value that goes up and down. True is 1. */
export const gauge = numbers('gauge')
/** A value that only grows, divided by a label. */
export const counter = numbers('counter')

export const byLabel = (label: string, values: Readonly<Record<string, number>>): Sample[] =>
  Object.entries(values).map(([key, value]) => ({ labels: { [label]: key }, value }))

export const histogramSamples = ({ buckets, sum }: HistogramSnapshot): Sample[] => [
  ...Object.entries(buckets).map(([le, value]) => ({ labels: { le }, value, suffix: '_bucket' })),
  { value: sum, suffix: '_sum' },
  { value: buckets['+Inf'] ?? 0, suffix: '_count' },
]

const escaped = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('\n', '\\n').replaceAll('"', '\\"')

const lineOf = (name: string, { labels = {}, value, suffix = '' }: Sample): string => {
  const pairs = Object.entries(labels).map(([label, text]) => `${label}="${escaped(text)}"`)
  return `${name}${suffix}${pairs.length === 0 ? '' : `{${pairs.join(',')}}`} ${value}`
}

/** Joins families of the same name, because each process of a daemon adds its own samples. */
export const merged = (families: readonly Family[]): Family[] => {
  const byName = new Map<string, Family>()
  for (const family of families) {
    const before = byName.get(family.name)
    byName.set(family.name, before === undefined ? family : { ...before, samples: [...before.samples, ...family.samples] })
  }
  return [...byName.values()]
}

/** The text that a collector reads. */
export const exposition = (families: readonly Family[]): string =>
  families
    .flatMap(({ name, type, help, samples }) => [
      `# HELP ${name} ${help.replaceAll('\\', '\\\\').replaceAll('\n', '\\n')}`,
      `# TYPE ${name} ${type}`,
      ...samples.map((sample) => lineOf(name, sample)),
    ])
    .map((line) => `${line}\n`)
    .join('')

/** Named counters with their descriptions. They are never reset while the process lives. */
export class Counters<Name extends string> {
  readonly #counts: Record<Name, number>

  constructor(names: Readonly<Record<Name, string>>) {
    this.#counts = Object.fromEntries(Object.keys(names).map((name) => [name, 0])) as Record<Name, number>
  }

  add(name: Name, by = 1): void {
    this.#counts[name] += by
  }

  get(name: Name): number {
    return this.#counts[name]
  }

  /** All counters, also those at zero. */
  snapshot(): Record<Name, number> {
    return { ...this.#counts }
  }
}
