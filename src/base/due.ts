/** Collects what is to be delivered: each item once, however often it was asked for, in the order in which they were last asked for. */
export class Due<T> {
  readonly #deliver: (all: readonly T[]) => Promise<void>
  readonly #due = new Set<T>()
  #work: Promise<void> | null = null

  /** `deliver`: called with everything asked for since the last call, and not again before its promise resolves. It must not throw. */
  constructor(components: { deliver(all: readonly T[]): Promise<void> }) {
    this.#deliver = components.deliver
  }

  ask(one: T): void {
    this.#due.delete(one)
    this.#due.add(one)
    this.#work ??= this.#run()
  }

  /** Drops what is not being delivered yet; resolves when the delivery under way is done. */
  async stop(): Promise<void> {
    this.#due.clear()
    await this.#work
  }

  async #run(): Promise<void> {
    await Promise.resolve()
    while (this.#due.size > 0) {
      const all = [...this.#due]
      this.#due.clear()
      await this.#deliver(all)
    }
    this.#work = null
  }
}
