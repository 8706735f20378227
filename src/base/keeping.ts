/** Holds memory on behalf of an owner, until `forget` releases it. */
export interface Keepable {
  /** May shrink while it is kept, and never grows. */
  readonly keptBytes: number
  forget(): void
}

export interface KeepingInit {
  readonly count: number
  readonly bytes: number
  readonly countPerOwner: number
}

/**
 * Bounds what is kept. Above `countPerOwner` the owner's oldest is forgotten, above `count` the oldest of all, above `bytes`
 * the oldest of the owner with most bytes.
 */
export class Keeping {
  readonly #limits: KeepingInit
  /** The owner of each, oldest first. */
  readonly #kept = new Map<Keepable, string>()

  constructor(init: KeepingInit) {
    this.#limits = init
  }

  add(owner: string, one: Keepable): void {
    const { count, bytes, countPerOwner } = this.#limits
    this.#kept.set(one, owner)
    const own = this.#of(owner)
    if (own.length > countPerOwner) this.#forget(own[0])
    if (this.#kept.size > count) this.#forget(this.#kept.keys().next().value)
    while (bytesOf([...this.#kept.keys()]) > bytes) this.#forget(this.#of(this.#largest())[0])
  }

  /** Takes it out without calling `forget`. */
  delete(one: Keepable): void {
    this.#kept.delete(one)
  }

  #forget(one: Keepable | undefined): void {
    if (one === undefined) return
    this.#kept.delete(one)
    one.forget()
  }

  #of(owner: string): Keepable[] {
    return [...this.#kept].flatMap(([one, whose]) => (whose === owner ? [one] : []))
  }

  #largest(): string {
    const sums = new Map<string, number>()
    for (const [{ keptBytes }, owner] of this.#kept) sums.set(owner, (sums.get(owner) ?? 0) + keptBytes)
    return [...sums].reduce((most, one) => (one[1] > most[1] ? one : most))[0]
  }
}

const bytesOf = (all: readonly Keepable[]): number => all.reduce((sum, { keptBytes }) => sum + keptBytes, 0)
