/** A map that forgets the oldest entry when it would hold more than `max`. What is set again is the newest. */
export class BoundedMap<K, V> extends Map<K, V> {
  readonly #max: number

  constructor(init: { max: number }) {
    super()
    this.#max = init.max
  }

  override set(key: K, value: V): this {
    this.delete(key)
    super.set(key, value)
    if (this.size > this.#max) this.delete(this.keys().next().value!)
    return this
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
