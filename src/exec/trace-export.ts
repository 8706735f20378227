import { Agent, request } from 'node:http'
import { type Clock, type Timer, within } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { nowUs } from '../base/run-stages.ts'
import type { Startable } from '../base/startable.ts'
import { MAX_TRACED_RUNS } from '../protocol/limits/daemon.ts'
import type { RequesterCounters } from './counters.ts'
import { type TraceSink, type TracedRun, newSpanId } from './run-traces.ts'

/** What has ended is collected for so long; a word of its requester that comes late still counts. */
export const EXPORT_EVERY_MS = 1_000
/** Runs of one message, some six spans of 300 bytes each. */
const MAX_BATCH = 256
/** How long a receiver may take. */
const EXPORT_MS = 5_000
/** … and how long it is waited for when we stop. */
const LAST_EXPORT_MS = 1_000
/** How often it is told that nobody takes them. */
const LOSS_TOLD_MS = 60_000

export interface TraceExportInit {
  /** OTLP over HTTP: `http://127.0.0.1:4318/v1/traces`. */
  readonly url: string
  readonly name: string
  readonly version: string
}

/** Sends what runs took to a collector on this host, as OTLP in JSON. Nothing waits for it: what it does not take is dropped and counted. */
export class TraceExport implements Startable, TraceSink {
  readonly #parts: { readonly clock: Clock; readonly counters: RequesterCounters; readonly log: Logger }
  readonly #init: TraceExportInit
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 })
  #waiting: TracedRun[] = []
  #timer: Timer | null = null
  #sending: Promise<void> | null = null
  #toldAt = -Infinity

  constructor(components: { clock: Clock; counters: RequesterCounters; log: Logger }, init: TraceExportInit) {
    this.#parts = components
    this.#init = init
  }

  async stop(): Promise<void> {
    this.#timer?.cancel()
    await within(this.#parts.clock, LAST_EXPORT_MS, this.#flush())
    this.#agent.destroy()
  }

  add(run: TracedRun): void {
    if (this.#waiting.length >= MAX_TRACED_RUNS) return this.#parts.counters.add('spans_dropped')
    this.#waiting.push(run)
    this.#timer ??= this.#parts.clock.setTimeout(() => void this.#flush(), EXPORT_EVERY_MS, { unref: true })
  }

  /** One message after the other, until none waits. */
  async #flush(): Promise<void> {
    this.#timer = null
    this.#sending ??= this.#sendAll().finally(() => (this.#sending = null))
    await this.#sending
  }

  async #sendAll(): Promise<void> {
    const { clock, counters, log } = this.#parts
    while (this.#waiting.length > 0) {
      const epoch = Math.round(clock.now() * 1_000 - nowUs())
      const spans = this.#waiting.splice(0, MAX_BATCH).flatMap((run) => run.spans(epoch, newSpanId))
      try {
        await this.#post(Buffer.from(JSON.stringify(this.#message(spans))))
        counters.add('spans_exported', spans.length)
      } catch (error) {
        counters.add('spans_dropped', spans.length)
        if (clock.monotonic() - this.#toldAt < LOSS_TOLD_MS) continue
        this.#toldAt = clock.monotonic()
        log.warn({ url: this.#init.url, err: errorText(error) }, 'spans were not taken, and are dropped')
      }
    }
  }

  #message(spans: readonly object[]): object {
    const { name, version } = this.#init
    const attributes = Object.entries({ 'service.name': 'x0xd', 'service.version': version, 'service.instance.id': name })
    return {
      resourceSpans: [
        {
          resource: { attributes: attributes.map(([key, value]) => ({ key, value: { stringValue: value } })) },
          scopeSpans: [{ scope: { name: 'x0x', version }, spans }],
        },
      ],
    }
  }

  async #post(body: Buffer): Promise<void> {
    const headers = { 'content-type': 'application/json', 'content-length': body.length }
    return new Promise((resolve, reject) => {
      const signal = AbortSignal.timeout(EXPORT_MS)
      const call = request(this.#init.url, { method: 'POST', agent: this.#agent, headers, signal }, (answer) => {
        answer.on('error', reject).resume()
        const { statusCode = 0 } = answer
        if (statusCode >= 200 && statusCode < 300) answer.on('end', resolve)
        else reject(new Error(`the collector answers ${statusCode}`))
      })
      call.on('error', reject).end(body)
    })
  }
}
