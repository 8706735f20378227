/**
 * Whether a source that holds `own` of `all` places may take `more`. It holds at most as many places as are free, so its share falls as
 * they fill. Each source gets its first `least` places, even if other sources hold all, so use `least` only for listed sources.
 */
export const hasShare = (own: number, all: number, max: number, { least = 0, more = 1 } = {}): boolean =>
  own + more <= least || (all + more <= max && own <= (max - all) / 2)

/** The items to drop so that `max` stay, oldest first. The owners with most items lose theirs, to protect the items of others. */
export const surplusOf = <T>(items: readonly T[], ownerOf: (item: T) => string, max: number): T[] => {
  const bySize = [...Map.groupBy(items, ownerOf).values()].toSorted((one, other) => one.length - other.length)
  let room = max
  return bySize.flatMap((own, at) => {
    const kept = Math.min(own.length, Math.floor(room / (bySize.length - at)))
    room -= kept
    return own.slice(0, own.length - kept)
  })
}

export interface BoundedMapInit<K, V> {
  /** Largest number of entries, not counting those for which `isApart` is true. */
  readonly max: number
  /** Selects entries that never make room for others. The caller bounds their number. */
  readonly isApart?: (key: K, value: V) => boolean
}

/**
 * A map of at most `max` entries. Above that it drops the oldest entry of the source that has most, so a source cannot push out all
 * entries of another. Setting an entry again makes it the newest.
 */
export class BoundedMap<K, V> extends Map<K, V> {
  readonly #init: BoundedMapInit<K, V>
  readonly #sources = new Map<K, string>()
  /** Keys of each source, oldest first. Sources are in the order of their last `set`. */
  readonly #keys = new Map<string, Set<K>>()

  constructor(init: BoundedMapInit<K, V>) {
    super()
    this.#init = init
  }

  override delete(key: K): boolean {
    const source = this.#sources.get(key)
    if (source === undefined) return false
    const keys = this.#keys.get(source)
    keys?.delete(key)
    if (keys?.size === 0) this.#keys.delete(source)
    this.#sources.delete(key)
    return super.delete(key)
  }

  /**
   * If another source sets an entry again, the entry counts for the source that has fewer others. A source can so take over entries of
   * another until both have the same number, and never the only one.
   */
  override set(key: K, value: V, source = ''): this {
    const before = this.#sources.get(key) ?? source
    const owner = this.#countOf(before) - 1 <= this.#countOf(source) ? before : source
    this.delete(key)
    const keys = this.#keys.get(owner) ?? new Set()
    this.#keys.delete(owner)
    this.#keys.set(owner, keys.add(key))
    this.#sources.set(key, owner)
    super.set(key, value)
    if (this.size > this.#init.max) this.#makeRoom()
    return this
  }

  #makeRoom(): void {
    const { max, isApart } = this.#init
    if (isApart !== undefined) {
      const rest = [...this].flatMap(([key, value]) => (isApart(key, value) ? [] : [key]))
      for (const key of surplusOf(rest, (one) => this.#sources.get(one)!, max)) this.delete(key)
      return
    }
    let [most] = this.#keys.values()
    for (const keys of this.#keys.values()) if (keys.size > most!.size) most = keys
    const [oldest] = most!
    this.delete(oldest!)
  }

  #countOf(source: string): number {
    return this.#keys.get(source)?.size ?? 0
  }
}

/** A set that drops its oldest value when it would hold more than `max`. */
export class BoundedSet<T> extends Set<T> {
  readonly #max: number

  constructor(init: { max: number }) {
    super()
    this.#max = init.max
  }

  override add(value: T): this {
    super.add(value)
    if (this.size > this.#max) this.delete(this.values().next().value!)
    return this
  }
}

/** An object that holds memory for an owner until `evict` releases it. */
export interface Evictable {
  /** This may shrink while the pool has the object, but never grows. */
  readonly retainedBytes: number
  evict(): void
}

export interface RetentionPoolInit {
  readonly count: number
  readonly bytes: number
  readonly countPerOwner: number
}

/**
 * Bounds retained objects. Above `countPerOwner` it evicts the owner's oldest, above `count` the oldest of all, and above `bytes` the
 * oldest of the owner with most bytes.
 */
export class RetentionPool {
  readonly #limits: RetentionPoolInit
  /** The owner of each object, oldest first. */
  readonly #kept = new Map<Evictable, string>()

  constructor(init: RetentionPoolInit) {
    this.#limits = init
  }

  add(owner: string, one: Evictable): void {
    const { count, bytes, countPerOwner } = this.#limits
    this.#kept.set(one, owner)
    const own = this.#of(owner)
    if (own.length > countPerOwner) this.#evict(own[0])
    if (this.#kept.size > count) this.#evict(this.#kept.keys().next().value)
    while (bytesOf([...this.#kept.keys()]) > bytes) this.#evict(this.#of(this.#largest())[0])
  }

  /** Removes an object without evicting it. */
  delete(one: Evictable): void {
    this.#kept.delete(one)
  }

  #evict(one: Evictable | undefined): void {
    if (one === undefined) return
    this.#kept.delete(one)
    one.evict()
  }

  #of(owner: string): Evictable[] {
    return [...this.#kept].flatMap(([one, whose]) => (whose === owner ? [one] : []))
  }

  #largest(): string {
    const sums = new Map<string, number>()
    for (const [{ retainedBytes: keptBytes }, owner] of this.#kept) sums.set(owner, (sums.get(owner) ?? 0) + keptBytes)
    return [...sums].reduce((most, one) => (one[1] > most[1] ? one : most))[0]
  }
}

const bytesOf = (all: readonly Evictable[]): number => all.reduce((sum, { retainedBytes: keptBytes }) => sum + keptBytes, 0)
