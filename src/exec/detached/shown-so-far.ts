import type { AskedRun } from '../../protocol/asked-run.ts'
import type { DetachedEvent, DetachedSink } from './detached-types.ts'

export const goesOn = ({ state }: { readonly state: AskedRun['state'] | null }): boolean => state === 'running' || state === 'waiting'

/** Passes events on, and knows when all that was kept at the beginning has been shown. */
export class ShownSoFar implements DetachedSink {
  readonly #sink: DetachedSink
  readonly #follow: boolean
  readonly #enough = new AbortController()
  readonly enough = this.#enough.signal
  #kept = 0
  next: number
  state: AskedRun['state'] | null = null

  constructor(components: { sink: DetachedSink }, init: { from: number; follow: boolean }) {
    this.#sink = components.sink
    this.#follow = init.follow
    this.next = init.from
  }

  async event(event: DetachedEvent): Promise<void> {
    await this.#sink.event(event)
    if (event.type === 'run_state') {
      this.state = event.info.state
      this.#kept = event.info.bytes_kept
    }
    if (event.type === 'stdout' || event.type === 'stderr') this.next = event.offset + event.data.length
    if (!this.#follow && goesOn(this) && this.next >= this.#kept) this.#enough.abort()
  }
}
