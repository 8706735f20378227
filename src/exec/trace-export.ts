import { Agent, request } from 'node:http'
import { type Timer, within } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { nowUs } from '../base/run-stages.ts'
import type { Startable } from '../base/startable.ts'
import { MAX_TRACED_RUNS } from '../protocol/limits/daemon.ts'
import { type TraceSink, type TracedRun, newSpanId } from './run-traces.ts'
import type { NetworkServices } from './services.ts'

/** Interval of exports. A trace context of the requester that arrives within it still counts. */
export const EXPORT_EVERY_MS = 1_000
/** Runs per message. Each has about six spans of 300 bytes. */
const MAX_BATCH = 256
/** Time limit of one export. */
const EXPORT_MS = 5_000
/** Time limit of the last export, at shutdown. */
const LAST_EXPORT_MS = 1_000
/** Interval at which lost spans are logged. */
const LOSS_WARNED_MS = 60_000

export interface TraceExportInit {
  /** URL of OTLP over HTTP, such as `http://127.0.0.1:4318/v1/traces`. */
  readonly url: string
  readonly name: string
  readonly version: string
}

/** Exports traces to a collector on this host, as OTLP in JSON. Traces that the collector does not accept are dropped and counted. */
export class TraceExport implements Startable, TraceSink {
  readonly #deps: Pick<NetworkServices, 'clock' | 'counters' | 'log'>
  readonly #init: TraceExportInit
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 })
  #waiting: TracedRun[] = []
  #timer: Timer | null = null
  #sending: Promise<void> | null = null
  #warnedAt = -Infinity

  constructor(deps: Pick<NetworkServices, 'clock' | 'counters' | 'log'>, init: TraceExportInit) {
    this.#deps = deps
    this.#init = init
  }

  async stop(): Promise<void> {
    this.#timer?.cancel()
    await within(this.#deps.clock, LAST_EXPORT_MS, this.#flush())
    this.#agent.destroy()
  }

  add(run: TracedRun): void {
    if (this.#waiting.length >= MAX_TRACED_RUNS) return this.#deps.counters.add('spans_dropped')
    this.#waiting.push(run)
    this.#timer ??= this.#deps.clock.setTimeout(() => void this.#flush(), EXPORT_EVERY_MS, { unref: true })
  }

  /** Sends all messages one after the other. */
  async #flush(): Promise<void> {
    this.#timer = null
    this.#sending ??= this.#sendAll().finally(() => (this.#sending = null))
    await this.#sending
  }

  async #sendAll(): Promise<void> {
    const { clock, counters, log } = this.#deps
    while (this.#waiting.length > 0) {
      const epoch = Math.round(clock.now() * 1_000 - nowUs())
      const spans = this.#waiting.splice(0, MAX_BATCH).flatMap((run) => run.spans(epoch, newSpanId))
      try {
        await this.#post(Buffer.from(JSON.stringify(this.#message(spans))))
        counters.add('spans_exported', spans.length)
      } catch (error) {
        counters.add('spans_dropped', spans.length)
        if (clock.monotonic() - this.#warnedAt < LOSS_WARNED_MS) continue
        this.#warnedAt = clock.monotonic()
        log.warn({ url: this.#init.url, err: errorText(error) }, 'the collector did not accept spans, and they are dropped')
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
