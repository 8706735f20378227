import type { FastifyReply } from 'fastify'
import type { ServerResponse } from 'node:http'
import type { Clock, Timer } from '../../base/clock.ts'
import { inOneWrite } from '../../base/one-write.ts'
import { jsonText } from '../../protocol/lines.ts'
import { RAW_RUN_TYPE } from '../../protocol/run-events.ts'

/** Silence after which a server-sent event stream gets a comment, so that nothing in between cuts it. */
export const SSE_HEARTBEAT_MS = 15_000

/**
 * One JSON object per line, or server-sent events (HTML Living Standard §9.2) with the same objects as data, or
 * lines again where bytes stand as they are behind the line that says how many.
 */
export type StreamFormat = 'ndjson' | 'sse' | 'raw'

const CONTENT_TYPES: Record<StreamFormat, string> = {
  ndjson: 'application/x-ndjson',
  sse: 'text/event-stream; charset=utf-8',
  raw: RAW_RUN_TYPE,
}

/** An answer that goes out object by object. Its head goes out with the first, or with `begin`. */
export class EventStream {
  readonly #reply: FastifyReply
  readonly #raw: ServerResponse
  readonly #format: StreamFormat
  readonly #clock: Clock
  #heartbeat: Timer | null = null
  /** How long a reader that is behind may take nothing; null: as long as it likes. */
  #patienceMs: number | null = null
  /** Runs while the reader is behind. */
  #patience: Timer | null = null
  #begun = false

  constructor(components: { reply: FastifyReply; clock: Clock }, init: { format: StreamFormat }) {
    this.#reply = components.reply
    this.#raw = components.reply.raw
    this.#clock = components.clock
    this.#format = init.format
  }

  get format(): StreamFormat {
    return this.#format
  }

  /** True once the status line is out. */
  get begun(): boolean {
    return this.#begun
  }

  begin(): void {
    if (this.#begun) return
    this.#begun = true
    const headers = this.#reply.getHeaders()
    this.#reply.hijack()
    for (const [name, value] of Object.entries(headers)) if (value !== undefined) this.#raw.setHeader(name, value)
    this.#raw.setHeader('content-type', CONTENT_TYPES[this.#format])
    // A connection that breaks is the caller's leaving, which is noticed by its `close`.
    this.#raw.on('error', () => undefined)
    this.#raw.once('close', () => this.#heartbeat?.cancel())
    this.#raw.flushHeaders()
    this.#beat()
  }

  /**
   * A promise when the reader is behind: it resolves when there is room again, or nobody to read. `left`: called when it
   * has left this process, or nobody is there to read it.
   */
  send(object: object, left?: () => void): void | Promise<void> {
    return this.#write(jsonText(object), 'utf8', left)
  }

  /** The same, of server-sent events, with the id that a reader who comes again says in Last-Event-ID. */
  sendWithId(object: object, id: string): void | Promise<void> {
    return this.#out(`id: ${id}\ndata: ${jsonText(object)}\n\n`, 'utf8')
  }

  /** The same for a JSON text that is ready. */
  sendText(json: string): void | Promise<void> {
    return this.#write(json, 'utf8')
  }

  /** The same for a JSON text in ASCII that is ready: large ones are neither looked through for escapes nor measured. */
  sendAscii(json: string): void | Promise<void> {
    return this.#write(json, 'latin1')
  }

  /** The same, and the bytes that it announces behind it, uncopied. Of the raw format only. */
  sendWithBytes(json: string, bytes: Uint8Array): void | Promise<void> {
    this.begin()
    if (this.#raw.destroyed) return undefined
    this.#raw.write(`${json}\n`, 'latin1')
    return this.#raw.write(bytes) ? undefined : this.#drained()
  }

  #write(json: string, encoding: BufferEncoding, left?: () => void): void | Promise<void> {
    return this.#out(this.#format === 'sse' ? `data: ${json}\n\n` : `${json}\n`, encoding, left)
  }

  #out(text: string, encoding: BufferEncoding, left?: () => void): void | Promise<void> {
    this.begin()
    if (this.#raw.destroyed) return left?.()
    if (this.#raw.socket !== null) inOneWrite(this.#raw.socket)
    return this.#raw.write(text, encoding, left) ? undefined : this.#drained()
  }

  /** From now on a reader that takes nothing for so long is hung up on. */
  hurry(ms: number): void {
    this.#patienceMs = ms
    if (this.#raw.writableNeedDrain) this.#watch()
  }

  end(): void {
    this.begin()
    this.#heartbeat?.cancel()
    this.#raw.end()
  }

  #watch(): void {
    if (this.#patienceMs !== null) this.#patience ??= this.#clock.setTimeout(() => this.#raw.destroy(), this.#patienceMs)
  }

  async #drained(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#watch()
    const done = (): void => {
      this.#patience?.cancel()
      this.#patience = null
      this.#raw.off('drain', done)
      this.#raw.off('close', done)
      resolve()
    }
    this.#raw.on('drain', done)
    this.#raw.on('close', done)
    await promise
  }

  /** A comment now and then, so that nothing in between takes a quiet stream for a dead one. */
  #beat(): void {
    if (this.#format !== 'sse') return
    this.#heartbeat = this.#clock.setTimeout(
      () => {
        if (!this.#raw.writableNeedDrain) this.#raw.write(':\n\n')
        this.#beat()
      },
      SSE_HEARTBEAT_MS,
      { unref: true },
    )
  }
}
