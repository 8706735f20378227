/** How much of the output of a process waits to be read. */
export type Fullness = 'room' | 'high' | 'limit'

/**
 * Says when nothing more is to be read from the connection: some output is not read by whoever asked for it. An answer
 * that somebody waits for stands behind that output, so reading goes on for it a little longer.
 */
export class ReadGate {
  readonly #onHeld: (held: boolean) => void
  readonly #high = new Set<object>()
  readonly #atLimit = new Set<object>()
  #expecting = false
  #held = false

  constructor(init: { onHeld: (held: boolean) => void }) {
    this.#onHeld = init.onHeld
  }

  /** Nothing is to be read now. */
  get held(): boolean {
    return this.#held
  }

  set(queue: object, fullness: Fullness): void {
    this.#high.delete(queue)
    this.#atLimit.delete(queue)
    if (fullness !== 'room') this.#high.add(queue)
    if (fullness === 'limit') this.#atLimit.add(queue)
    this.#check()
  }

  /** Somebody waits for an answer. */
  expect(expecting: boolean): void {
    this.#expecting = expecting
    this.#check()
  }

  #check(): void {
    const held = this.#atLimit.size > 0 || (this.#high.size > 0 && !this.#expecting)
    if (held === this.#held) return
    this.#held = held
    this.#onHeld(held)
  }
}
