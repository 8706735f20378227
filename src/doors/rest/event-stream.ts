import type { FastifyReply } from 'fastify'
import type { ServerResponse } from 'node:http'
import { inOneWrite } from '../../base/buffers.ts'
import type { Clock, Timer } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { RAW_RUN_TYPE } from '../../protocol/api/run-events.ts'
import { hasShape } from '../../protocol/json-shape.ts'
import { MAX_ARGV_TOKENS } from '../../protocol/limits/wire.ts'
import { jsonText, linesOf } from '../../protocol/lines.ts'
import { fromBase64, utf8Text } from '../../protocol/text.ts'

/** Interval of the comments in a quiet server-sent event stream, so that no proxy closes it. */
export const SSE_HEARTBEAT_MS = 15_000

/**
 * `ndjson`: one JSON object per line. `sse`: the same objects as server-sent events (HTML Living Standard §9.2). `raw`: lines as in
 * `ndjson`, but output follows its line as bytes, whose number the line states.
 */
export type StreamFormat = 'ndjson' | 'sse' | 'raw'

const CONTENT_TYPES: Record<StreamFormat, string> = {
  ndjson: 'application/x-ndjson',
  sse: 'text/event-stream; charset=utf-8',
  raw: RAW_RUN_TYPE,
}

/** An answer that is sent object by object. The first object, or `start`, sends the head. */
export class EventStream {
  readonly #deps: { readonly reply: FastifyReply; readonly clock: Clock }
  readonly #raw: ServerResponse
  readonly format: StreamFormat
  #heartbeat: Timer | null = null
  /** How long a slow client may read nothing. Null means forever. */
  #readTimeoutMs: number | null = null
  /** Set while the client is behind. */
  #readTimer: Timer | null = null
  #started = false

  constructor(deps: { readonly reply: FastifyReply; readonly clock: Clock }, init: { readonly format: StreamFormat }) {
    this.#deps = deps
    this.#raw = deps.reply.raw
    this.format = init.format
  }

  /** True once the status line was sent. */
  get begun(): boolean {
    return this.#started
  }

  start(): void {
    if (this.#started) return
    this.#started = true
    const headers = this.#deps.reply.getHeaders()
    this.#deps.reply.hijack()
    for (const [name, value] of Object.entries(headers)) if (value !== undefined) this.#raw.setHeader(name, value)
    this.#raw.setHeader('content-type', CONTENT_TYPES[this.format])
    // `close` reports the disconnect.
    this.#raw.on('error', () => undefined)
    this.#raw.once('close', () => this.#heartbeat?.cancel())
    this.#raw.flushHeaders()
    this.#beat()
  }

  /**
   * Returns a promise while the client is behind. It resolves when the buffer has drained or the client is gone. `left` is called when the
   * object has left this process or the client is gone.
   */
  send(object: object, left?: () => void): void | Promise<void> {
    return this.#write(jsonText(object), 'utf8', left)
  }

  /** As `send`, with the event ID that a reconnecting client repeats in Last-Event-ID. */
  sendWithId(object: object, id: string): void | Promise<void> {
    return this.#out(`id: ${id}\ndata: ${jsonText(object)}\n\n`, 'utf8')
  }

  /** As `send`, for serialized JSON. */
  sendText(json: string): void | Promise<void> {
    return this.#write(json, 'utf8')
  }

  /** As `send`, for serialized JSON in ASCII. Large texts are neither escaped nor measured again. */
  sendAscii(json: string): void | Promise<void> {
    return this.#write(json, 'latin1')
  }

  /** As `send`, followed by the bytes that the line announces, without a copy. For the raw format only. */
  sendWithBytes(json: string, bytes: Uint8Array): void | Promise<void> {
    this.start()
    if (this.#raw.destroyed) return undefined
    this.#raw.write(`${json}\n`, 'latin1')
    return this.#raw.write(bytes) ? undefined : this.#drained()
  }

  #write(json: string, encoding: BufferEncoding, left?: () => void): void | Promise<void> {
    return this.#out(this.format === 'sse' ? `data: ${json}\n\n` : `${json}\n`, encoding, left)
  }

  #out(text: string, encoding: BufferEncoding, left?: () => void): void | Promise<void> {
    this.start()
    if (this.#raw.destroyed) return left?.()
    if (this.#raw.socket !== null) inOneWrite(this.#raw.socket)
    return this.#raw.write(text, encoding, left) ? undefined : this.#drained()
  }

  /** From now on, a client that reads nothing for `ms` is disconnected. */
  hurry(ms: number): void {
    this.#readTimeoutMs = ms
    if (this.#raw.writableNeedDrain) this.#watch()
  }

  end(): void {
    this.start()
    this.#heartbeat?.cancel()
    this.#raw.end()
  }

  #watch(): void {
    if (this.#readTimeoutMs !== null) this.#readTimer ??= this.#deps.clock.setTimeout(() => this.#raw.destroy(), this.#readTimeoutMs)
  }

  async #drained(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#watch()
    const done = (): void => {
      this.#readTimer?.cancel()
      this.#readTimer = null
      this.#raw.off('drain', done)
      this.#raw.off('close', done)
      resolve()
    }
    this.#raw.on('drain', done)
    this.#raw.on('close', done)
    await promise
  }

  #beat(): void {
    if (this.format !== 'sse') return
    this.#heartbeat = this.#deps.clock.setTimeout(
      () => {
        if (!this.#raw.writableNeedDrain) this.#raw.write(':\n\n')
        this.#beat()
      },
      SSE_HEARTBEAT_MS,
      { unref: true },
    )
  }
}

/** Maximum size of one line of an NDJSON request body: stdin in base64, or argv with every character escaped. */
export const MAX_NDJSON_LINE = 2 * 1024 * 1024

/** Decodes UTF-8 strictly, so that nothing is altered silently. Throws `bad_request`. */
export const utf8 = (bytes: Uint8Array): string => {
  const text = utf8Text(bytes)
  if (text === null) throw new AppError('bad_request', 'the body is not valid UTF-8')
  return text
}

/** Eight times the tokens of a command. A parsed value of two bytes takes dozens of bytes, and parsing time delays every run. */
export const MAX_BODY_SHAPE = { depth: 32, values: 8 * MAX_ARGV_TOKENS } as const

/** Throws `bad_request` with the message of the parser. */
export const parseJson = (bytes: Uint8Array, values: number = MAX_BODY_SHAPE.values): unknown => {
  if (!hasShape(bytes, { ...MAX_BODY_SHAPE, values }))
    throw new AppError('bad_request', `the body has more than ${values} values, or is nested more than ${MAX_BODY_SHAPE.depth} deep`)
  try {
    return JSON.parse(utf8(bytes)) as unknown
  } catch (error) {
    if (error instanceof AppError) throw error
    throw new AppError('bad_request', `the body is not valid JSON: ${(error as Error).message}`, { cause: error })
  }
}

/** Decodes standard base64 with padding. Throws `bad_request`, which names `key`. */
export const decodeBase64 = (text: string, key: string): Uint8Array => {
  const bytes = fromBase64(text)
  if (bytes === null) throw new AppError('bad_request', `${key}: not base64`)
  return bytes
}

/** Lines that are not blank, without line feeds. */
export async function* bodyLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const line of linesOf(body, MAX_NDJSON_LINE, tooLong)) if (!isBlank(line)) yield line
}

const tooLong = (): AppError => new AppError('too_large', `a line is longer than ${MAX_NDJSON_LINE} bytes`)

const isBlank = (line: Uint8Array): boolean => line.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d)
