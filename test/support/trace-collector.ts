import { createServer, type Server } from 'node:http'
import { EventEmitter, once } from 'node:events'
import type { AddressInfo } from 'node:net'
import type { TestContext } from 'node:test'

export interface Span {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly status?: { readonly code: number }
  readonly attributes: Readonly<Record<string, string>>
  /** The sender of the span: `service.instance.id`. */
  readonly service: string
}

type Pairs = readonly { readonly key: string; readonly value: Readonly<Record<string, string>> }[]

interface Message {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: Pairs }
    readonly scopeSpans: readonly { readonly spans: readonly (Omit<Span, 'attributes' | 'service'> & { readonly attributes?: Pairs })[] }[]
  }[]
}

const flat = (pairs: Pairs = []): Record<string, string> =>
  Object.fromEntries(pairs.map(({ key, value }) => [key, Object.values(value)[0]!]))

/** A real server for OTLP over HTTP that keeps the spans it receives. */
export class TraceCollector {
  readonly spans: Span[] = []
  /** The complete text that it received. */
  text = ''
  readonly #server: Server
  readonly #came = new EventEmitter()

  private constructor(answer: number | null) {
    this.#server = createServer((request, response) => {
      const parts: Buffer[] = []
      request.on('data', (part: Buffer) => void parts.push(part))
      request.on('end', () => {
        this.#take(Buffer.concat(parts).toString())
        if (answer !== null) response.writeHead(answer).end()
      })
    })
  }

  /** `answer` is the status of each answer. Null never answers. */
  static async start(t: Pick<TestContext, 'after'>, answer: number | null = 200): Promise<TraceCollector> {
    const collector = new TraceCollector(answer)
    collector.#server.listen(0, '127.0.0.1')
    await once(collector.#server, 'listening')
    t.after(() => {
      collector.#server.closeAllConnections()
      collector.#server.close()
    })
    return collector
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/v1/traces`
  }

  /** Resolves when the condition holds. */
  async has(condition: () => boolean): Promise<void> {
    while (!condition()) await once(this.#came, 'came')
  }

  #take(text: string): void {
    this.text += text
    for (const { resource, scopeSpans } of (JSON.parse(text) as Message).resourceSpans)
      for (const { attributes, ...span } of scopeSpans.flatMap(({ spans }) => spans))
        this.spans.push({ ...span, attributes: flat(attributes), service: flat(resource.attributes)['service.instance.id']! })
    this.#came.emit('came')
  }
}
