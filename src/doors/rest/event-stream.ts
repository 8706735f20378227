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
  #started = false

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
    return this.#started
  }

  start(): void {
    if (this.#started) return
    this.#started = true
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
    this.start()
    if (this.#raw.destroyed) return undefined
    this.#raw.write(`${json}\n`, 'latin1')
    return this.#raw.write(bytes) ? undefined : this.#drained()
  }

  #write(json: string, encoding: BufferEncoding, left?: () => void): void | Promise<void> {
    return this.#out(this.#format === 'sse' ? `data: ${json}\n\n` : `${json}\n`, encoding, left)
  }

  #out(text: string, encoding: BufferEncoding, left?: () => void): void | Promise<void> {
    this.start()
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
    this.start()
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

/** One line of an NDJSON request body: stdin in base64, or argv with every character escaped. */
export const MAX_NDJSON_LINE = 2 * 1024 * 1024

/** Text of foreign bytes; throws `bad_request` where they are not UTF-8, so that nothing is silently altered. */
export const utf8 = (bytes: Uint8Array): string => {
  const text = utf8Text(bytes)
  if (text === null) throw new AppError('bad_request', 'the body is not valid UTF-8')
  return text
}

/** More than any request has: eight times the words of a command. A value of two bytes takes dozens once it is parsed, and the time of everybody's runs. */
export const MAX_BODY_SHAPE = { depth: 32, values: 8 * MAX_ARGV_TOKENS } as const

/** Throws `bad_request` with the parser's own words. */
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

/** Standard base64 with its padding and nothing else; throws `bad_request` naming `key`. */
export const decodeBase64 = (text: string, key: string): Uint8Array => {
  const bytes = fromBase64(text)
  if (bytes === null) throw new AppError('bad_request', `${key}: not base64`)
  return bytes
}

/** The lines that are not blank, without their ends. */
export async function* bodyLines(body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  for await (const line of linesOf(body, MAX_NDJSON_LINE, tooLong)) if (!isBlank(line)) yield line
}

const tooLong = (): AppError => new AppError('too_large', `a line is longer than ${MAX_NDJSON_LINE} bytes`)

const isBlank = (line: Uint8Array): boolean => line.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d)
