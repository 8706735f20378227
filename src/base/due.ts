export interface DueComponents<T> {
  /** Called with what was asked for in one turn together, and not again before it is done. It must not throw. */
  deliver(all: readonly T[]): Promise<void>
}

/** What is still to be delivered, each once and in the order of its last asking, however often it is asked for. */
export class Due<T> {
  readonly #deliver: (all: readonly T[]) => Promise<void>
  readonly #due = new Set<T>()
  #work: Promise<void> | null = null

  constructor(components: DueComponents<T>) {
    this.#deliver = components.deliver
  }

  ask(one: T): void {
    this.#due.delete(one)
    this.#due.add(one)
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
      const all = [...this.#due]
      this.#due.clear()
      await this.#deliver(all)
    }
    this.#work = null
  }
}
