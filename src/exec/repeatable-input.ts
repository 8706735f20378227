import type { RunSpec } from './run-spec.ts'

/**
 * An input that can be read again from its beginning, until it is released. One reader at a time. What was read is kept, so the
 * reader must stop by itself, such as at the window of a run.
 */
export class RepeatableInput<T> implements AsyncIterable<T> {
  readonly #source: AsyncIterator<T>
  #kept: T[] = []
  #isOver = false
  #isReleased = false
  #reading: Promise<void> | null = null
  /** Number of readers so far. Only the latest one counts. */
  #readers = 0

  constructor(source: AsyncIterable<T>) {
    this.#source = source[Symbol.asyncIterator]()
  }

  [Symbol.asyncIterator](): AsyncIterator<T> {
    let at = 0
    const reader = ++this.#readers
    const next = async (): Promise<IteratorResult<T, undefined>> => {
      while (at >= this.#kept.length) {
        if (this.#isOver) return { done: true, value: undefined }
        await (this.#reading ??= this.#read())
        if (reader !== this.#readers) return { done: true, value: undefined }
      }
      const value = this.#kept[at]!
      at += 1
      if (this.#isReleased) {
        this.#kept.splice(0, at)
        at = 0
      }
      return { done: false, value }
    }
    // The next reader continues with the same source.
    return { next, return: async () => ({ done: true, value: undefined }) }
  }

  /** The input is read for the last time. Nothing is kept any more. */
  release(): void {
    this.#isReleased = true
  }

  /** Ends the source. Not awaited, because it may be in the middle of a read. */
  close(): void {
    this.#isOver = true
    this.#kept = []
    void Promise.resolve(this.#source.return?.()).catch(() => undefined)
  }

  async #read(): Promise<void> {
    try {
      const result = await this.#source.next()
      if (result.done === true) this.#isOver = true
      else this.#kept.push(result.value)
    } finally {
      this.#reading = null
    }
  }
}

/** A run whose stdin or terminal input can be sent again, until its program has started. */
export class RepeatableSpec {
  readonly #spec: RunSpec
  readonly #inputs: readonly RepeatableInput<unknown>[]

  constructor(spec: RunSpec) {
    const { stdin, terminal } = spec
    const chunks = stdin && new RepeatableInput(stdin.chunks)
    const input = terminal && new RepeatableInput(terminal.input)
    this.#inputs = [chunks, input].filter((one) => one !== null && one !== undefined)
    this.#spec = {
      ...spec,
      stdin: stdin && chunks && { ...stdin, chunks },
      ...(terminal && input && { terminal: { ...terminal, input } }),
    }
  }

  again(): RunSpec {
    return this.#spec
  }

  release(): void {
    for (const input of this.#inputs) input.release()
  }

  close(): void {
    for (const input of this.#inputs) input.close()
  }
}
