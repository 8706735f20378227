import { surplusOf } from './share.ts'

export interface BoundedMapInit<K, V> {
  /** Entries at most, beside those that are kept apart. */
  readonly max: number
  /** Entries that never make room for others. The caller bounds their number. */
  readonly isApart?: (key: K, value: V) => boolean
}

/**
 * A map that forgets an entry when it would hold more than `max`: the oldest of the source that has most. So a source cannot push out all
 * entries of another. An entry that is set again is the newest.
 */
export class BoundedMap<K, V> extends Map<K, V> {
  readonly #init: BoundedMapInit<K, V>
  readonly #sources = new Map<K, string>()
  /** Keys of each source, the oldest first; the source that has set one last is the last. */
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

/** A set that forgets the oldest value when it would hold more than `max`. */
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
