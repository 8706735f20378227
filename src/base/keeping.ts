/** Takes memory for an owner, and can be let go. */
export interface Keepable {
  /** Shrinks, and never grows. */
  readonly keptBytes: number
  forget(): void
}

export interface KeepingInit {
  readonly count: number
  readonly bytes: number
  readonly countPerOwner: number
}

/** Bounds what is kept: in number of each owner and of all, where the oldest goes first, and in bytes of all, where the oldest goes of the owner who has most. */
export class Keeping {
  readonly #limits: KeepingInit
  /** Each with its owner, oldest first. */
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

  /** It is not kept any more, for whatever reason. */
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
