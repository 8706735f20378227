import type { Attached } from '../../exec/detached-runs.ts'
import type { DetachedEvent, DetachedSink } from '../../exec/detached/detached-types.ts'
import type { KeptThere } from '../../protocol/asked-run.ts'
import type { AttachedEventJson } from '../../protocol/attached-events.ts'
import type { RequestId } from '../../protocol/ids.ts'
import { MAX_AGGREGATED_OUTPUT } from '../../protocol/limits.ts'
import { toBase64 } from '../../protocol/text.ts'
import { errorFields } from './error-fields.ts'
import type { EventStream } from './event-stream.ts'

/** As callers are shown it. */
export const keptThere = ({ bytes_kept, bytes_dropped, keep_bytes, lifetime_left_ms, kept_for_ms }: KeptThere): KeptThere => ({
  bytes_kept,
  bytes_dropped,
  keep_bytes,
  lifetime_left_ms,
  kept_for_ms,
})

/** Keeps output for one JSON answer, as far as it fits: whoever wants more goes on at `next`. */
export class GatheredOutput implements DetachedSink {
  readonly #parts = { stdout: [] as Uint8Array[], stderr: [] as Uint8Array[] }
  readonly #full = new AbortController()
  readonly #max: number
  /** Aborts when nothing more fits. */
  readonly full = this.#full.signal
  #kept = 0
  next: number

  constructor(init: { from: number; max?: number }) {
    this.next = init.from
    this.#max = init.max ?? MAX_AGGREGATED_OUTPUT
  }

  event(event: DetachedEvent): void {
    if ((event.type !== 'stdout' && event.type !== 'stderr') || this.full.aborted) return
    const data = event.data.subarray(0, this.#max - this.#kept)
    this.#parts[event.type].push(data)
    this.#kept += data.length
    this.next = event.offset + data.length
    if (this.#kept >= this.#max) this.#full.abort()
  }

  result(request_id: RequestId, { state, from, next, outcome }: Attached): object {
    const [stdout_b64, stderr_b64] = [this.#text('stdout'), this.#text('stderr')]
    return { ok: true, request_id, state, from, next, stdout_b64, stderr_b64, outcome }
  }

  #text(name: 'stdout' | 'stderr'): string {
    return Buffer.concat(this.#parts[name]).toString('base64')
  }
}

/** Writes events as they come; a reader that is behind holds its stream from the host, and nothing else. */
export class StreamedOutput implements DetachedSink {
  readonly #stream: EventStream
  readonly #requestId: RequestId
  #next: number

  constructor(components: { stream: EventStream }, init: { requestId: RequestId; from: number }) {
    this.#stream = components.stream
    this.#requestId = init.requestId
    this.#next = init.from
  }

  event(event: DetachedEvent): void | Promise<void> {
    const request_id = this.#requestId
    switch (event.type) {
      case 'run_state': {
        const { info, from } = event
        return this.#stream.send({ type: 'state', request_id, state: info.state, from, ...keptThere(info) } satisfies AttachedEventJson)
      }
      case 'stdout':
      case 'stderr': {
        const { type, offset, data } = event
        this.#next = offset + data.length
        const head = `{"type":"${type}","request_id":"${request_id}","offset":${offset}`
        if (this.#stream.format === 'raw') return this.#stream.sendWithBytes(`${head},"data_bytes":${data.length}}`, data)
        return this.#stream.sendAscii(`${head},"data_b64":"${toBase64(data)}"}`)
      }
      case 'reattached':
        return this.#stream.send({ type: 'reattached', request_id, offset: event.offset } satisfies AttachedEventJson)
      case 'started':
      case 'warning':
        return this.#stream.send(event)
    }
  }

  async end({ state, outcome, from, next }: Attached): Promise<void> {
    const request_id = this.#requestId
    const last: AttachedEventJson =
      outcome === null ? { type: 'end', request_id, state, from, next } : { type: 'exit', ...outcome, from, next }
    await this.#stream.send(last)
    this.#stream.end()
  }

  /** An error after the head went out has no status any more: it is the last line. False = nothing went out yet. */
  fail(error: unknown): boolean {
    if (!this.#stream.begun) return false
    const [request_id, next] = [this.#requestId, this.#next]
    void this.#stream.send({ type: 'error', request_id, ...errorFields(error), next } satisfies AttachedEventJson)
    this.#stream.end()
    return true
  }
}
