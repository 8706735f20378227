/** Who wants to hear of something. */
export class Listeners<Told extends readonly unknown[]> {
  readonly #all = new Set<(...told: Told) => void>()

  /** Called each time from now on; the answer ends it. */
  readonly add = (listener: (...told: Told) => void): (() => void) => {
    this.#all.add(listener)
    return () => void this.#all.delete(listener)
  }

  tell(...told: Told): void {
    for (const listener of this.#all) listener(...told)
  }
}
