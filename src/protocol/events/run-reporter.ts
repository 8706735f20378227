import { MAX_EVENT_TAIL, TRUNCATED_SUFFIX } from '../limits/events.ts'
import { RingBuffer } from '../ring-buffer.ts'
import { isContinuation } from '../text.ts'
import { type LifecycleEvent, type LifecycleFacts, lifecycleLabel, lifecycleName, runOf } from './lifecycle.ts'

/** Maximum bytes of MAX_EVENT_TAIL characters, and of an incomplete one before them. */
const KEPT_BYTES = 3 * MAX_EVENT_TAIL + 3
const UTF8 = new TextDecoder('utf-8', { ignoreBOM: true })

export interface Tail {
  readonly text: string
  /** True if earlier output was cut. The text then ends with a suffix. */
  readonly truncated: boolean
}

const withoutHalf = (text: string): string => (/^[\udc00-\udfff]/.test(text) ? text.slice(1) : text)

/** The last MAX_EVENT_TAIL characters of a text, with the suffix. */
export const tailOf = (text: string, wasCut = false): Tail => {
  if (!wasCut && text.length <= MAX_EVENT_TAIL) return { text, truncated: false }
  return { text: `${withoutHalf(text.slice(-(MAX_EVENT_TAIL - TRUNCATED_SUFFIX.length)))}${TRUNCATED_SUFFIX}`, truncated: true }
}

/** Stores the end of a program's output, both streams in order of arrival, in bounded memory. */
export class OutputTail {
  readonly #last = new RingBuffer({ max: KEPT_BYTES })

  push(piece: Uint8Array): void {
    this.#last.push(piece)
  }

  /** Returns the present end. Invalid UTF-8 becomes U+FFFD. */
  take(): Tail {
    const { total } = this.#last
    const begin = Math.max(total - KEPT_BYTES, 0)
    const bytes = this.#last.slice(begin, total)
    let from = 0
    if (begin > 0) while (from < 3 && isContinuation(bytes[from])) from += 1
    return tailOf(UTF8.decode(bytes.subarray(from)), begin > 0)
  }
}

type End = Pick<LifecycleEvent, 'code' | 'signal' | 'duration_ms' | 'incomplete'>

/** Reports one run as events. It never blocks the run and emits its last event once. */
export class RunReporter {
  readonly #emit: (facts: LifecycleFacts) => void
  readonly #of: Pick<LifecycleFacts, 'owner' | 'session' | 'door' | 'run_id' | 'node'>
  readonly #tail = new OutputTail()
  #waited = false
  #began = false
  #ended = false
  /** True if there is output since the last report. */
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

  /** Emitted once, for any number of approvals. */
  waits(expires_in_ms: number): void {
    if (!this.#waited) this.#emit({ type: 'exec.waiting', ...this.#of, expires_in_ms })
    this.#waited = true
  }

  output(data: Uint8Array): void {
    this.#tail.push(data)
    this.#wrote = true
  }

  /** Key of the run, by `runOf`. */
  get run(): string {
    return runOf(this.#of)
  }

  /** The event of a running run, or null if it is not running. */
  get running(): LifecycleFacts | null {
    return this.#began && !this.#ended ? { type: 'exec.started', ...this.#of } : null
  }

  /** Output so far while it runs. Null without new output since the last call, unless `again`. */
  soFar(again: boolean): LifecycleFacts | null {
    if (!this.#began || this.#ended || !(this.#wrote || again)) return null
    this.#wrote = false
    const { text: tail, truncated: tail_truncated } = this.#tail.take()
    return { type: 'exec.output', ...this.#of, tail, tail_truncated }
  }

  denied(reason: string, duration_ms: number | null = null): void {
    this.#last(() => ({ type: 'exec.denied', ...this.#of, denial_reason: lifecycleName(reason), duration_ms }))
  }

  finished({ code, signal, duration_ms, incomplete }: End): void {
    this.#last(() => {
      const { text: tail, truncated: tail_truncated } = this.#tail.take()
      return { type: 'exec.finished', ...this.#of, code, signal, duration_ms, incomplete, tail, tail_truncated }
    })
  }

  /** The end of the run is unknown. */
  lost(): void {
    this.finished({ code: null, signal: null, duration_ms: null, incomplete: true })
  }

  #last(make: () => LifecycleFacts): void {
    if (!this.#ended) this.#emit(make())
    this.#ended = true
  }
}
