import { MAX_EVENT_TAIL, TRUNCATED_SUFFIX } from '../limits/events.ts'
import { RingBuffer } from '../ring-buffer.ts'
import { isContinuation } from '../text.ts'
import { type LifecycleEvent, type LifecycleFacts, lifecycleLabel, lifecycleName, runOf } from './lifecycle.ts'

/** As many bytes as MAX_EVENT_TAIL characters can have, and what may be left of one before them. */
const KEPT_BYTES = 3 * MAX_EVENT_TAIL + 3
const UTF8 = new TextDecoder('utf-8', { ignoreBOM: true })

export interface Tail {
  readonly text: string
  /** There was more before it; the text then ends with the suffix that says so. */
  readonly truncated: boolean
}

const withoutHalf = (text: string): string => (/^[\udc00-\udfff]/.test(text) ? text.slice(1) : text)

/** The last MAX_EVENT_TAIL characters of a text, its suffix among them. */
export const tailOf = (text: string, wasCut = false): Tail => {
  if (!wasCut && text.length <= MAX_EVENT_TAIL) return { text, truncated: false }
  return { text: `${withoutHalf(text.slice(-(MAX_EVENT_TAIL - TRUNCATED_SUFFIX.length)))}${TRUNCATED_SUFFIX}`, truncated: true }
}

/** Keeps the end of what a program writes to either stream, in the order in which it came, in bounded memory. */
export class OutputTail {
  readonly #last = new RingBuffer({ max: KEPT_BYTES })

  push(piece: Uint8Array): void {
    this.#last.push(piece)
  }

  /** What there is now. Bytes that are no UTF-8 stand in it as U+FFFD. */
  take(): Tail {
    const { total } = this.#last
    const begin = Math.max(total - KEPT_BYTES, 0)
    const bytes = this.#last.slice(begin, total)
    let from = 0
    if (begin > 0) while (from < 3 && isContinuation(bytes[from])) from += 1
    return tailOf(UTF8.decode(bytes.subarray(from)), begin > 0)
  }
}

/** How a run ended. */
type End = Pick<LifecycleEvent, 'code' | 'signal' | 'duration_ms' | 'incomplete'>

/** One run from its beginning to its end, told as events to whoever asked for it. It holds nothing up, and its last event comes once. */
export class RunReporter {
  readonly #emit: (facts: LifecycleFacts) => void
  readonly #of: Pick<LifecycleFacts, 'owner' | 'session' | 'door' | 'run_id' | 'node'>
  readonly #tail = new OutputTail()
  #waited = false
  #began = false
  #ended = false
  /** It has written since it was last asked what. */
  #wrote = false

  constructor(
    components: { readonly tell: (facts: LifecycleFacts) => void },
    init: Pick<LifecycleFacts, 'owner' | 'session' | 'door' | 'run_id' | 'node'>,
  ) {
    this.#emit = components.tell
    this.#of = { ...init, owner: lifecycleLabel(init.owner), node: lifecycleName(init.node) }
  }

  get over(): boolean {
    return this.#ended
  }

  started(): void {
    this.#began = true
    this.#emit({ type: 'exec.started', ...this.#of })
  }

  /** Told once, however many must agree. */
  waits(expires_in_ms: number): void {
    if (!this.#waited) this.#emit({ type: 'exec.waiting', ...this.#of, expires_in_ms })
    this.#waited = true
  }

  output(data: Uint8Array): void {
    this.#tail.push(data)
    this.#wrote = true
  }

  /** As `runOf` has it. */
  get run(): string {
    return runOf(this.#of)
  }

  /** That it runs, where it does. */
  get running(): LifecycleFacts | null {
    return this.#began && !this.#ended ? { type: 'exec.started', ...this.#of } : null
  }

  /** What it has written, while it goes on. Null: nothing since this was last asked, unless `again`. */
  soFar(again: boolean): LifecycleFacts | null {
    if (!this.#began || this.#ended || !(this.#wrote || again)) return null
    this.#wrote = false
    const { text: tail, truncated: tail_truncated } = this.#tail.take()
    return { type: 'exec.output', ...this.#of, tail, tail_truncated }
  }

  /** It did not run. */
  denied(reason: string, duration_ms: number | null = null): void {
    this.#last(() => ({ type: 'exec.denied', ...this.#of, denial_reason: lifecycleName(reason), duration_ms }))
  }

  finished({ code, signal, duration_ms, incomplete }: End): void {
    this.#last(() => {
      const { text: tail, truncated: tail_truncated } = this.#tail.take()
      return { type: 'exec.finished', ...this.#of, code, signal, duration_ms, incomplete, tail, tail_truncated }
    })
  }

  /** Nobody knows how it ended. */
  lost(): void {
    this.finished({ code: null, signal: null, duration_ms: null, incomplete: true })
  }

  #last(make: () => LifecycleFacts): void {
    if (!this.#ended) this.#emit(make())
    this.#ended = true
  }
}
