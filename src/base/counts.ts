/** Counts by name, each with what it counts; never reset while the process lives. */
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

  /** All of them, zeros included. */
  snapshot(): Record<Name, number> {
    return { ...this.#counts }
  }
}
