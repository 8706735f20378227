import { surplusOf } from './share.ts'

export interface BoundedMapInit<K, V> {
  /** Entries at most, beside those that are kept apart. */
  readonly max: number
  /** Entries that never make room for others. The caller bounds their number. */
  readonly isApart?: (key: K, value: V) => boolean
}

/** A map that forgets an entry when it would hold more than `max`: the oldest of the source that has most. An entry that is set again is the newest. */
export class BoundedMap<K, V> extends Map<K, V> {
  readonly #init: BoundedMapInit<K, V>
  /** Sources of the entries that were set with one. */
  readonly #sources = new Map<K, string>()

  constructor(init: BoundedMapInit<K, V>) {
    super()
    this.#init = init
  }

  override delete(key: K): boolean {
    this.#sources.delete(key)
    return super.delete(key)
  }

  /** If another source sets an entry again, the entry counts for the source that has fewer. Otherwise a source could make the entries of others its own, and then push them out. */
  override set(key: K, value: V, source = ''): this {
    const before = this.has(key) ? this.#sourceOf(key) : source
    const owner = before === source || this.#countOf(before) <= this.#countOf(source) ? before : source
    this.delete(key)
    if (owner !== '') this.#sources.set(key, owner)
    super.set(key, value)
    if (this.size > this.#init.max) this.#makeRoom()
    return this
  }

  #makeRoom(): void {
    const { max, isApart } = this.#init
    if (this.#sources.size === 0 && isApart === undefined) return void this.delete(this.keys().next().value!)
    const rest = [...this].flatMap(([key, value]) => (isApart?.(key, value) === true ? [] : [key]))
    for (const key of surplusOf(rest, (one) => this.#sourceOf(one), max)) this.delete(key)
  }

  #sourceOf(key: K): string {
    return this.#sources.get(key) ?? ''
  }

  #countOf(source: string): number {
    return [...this.keys()].filter((key) => this.#sourceOf(key) === source).length
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
