import { type NetConnectOpts, type Socket, connect } from 'node:net'
import type { Readable } from 'node:stream'
import { AppError } from '../base/errors.ts'

export interface HttpCall {
  readonly method: 'GET' | 'POST' | 'PUT'
  /** Path and query, escaped. */
  readonly path: string
  readonly headers: Readonly<Record<string, string>>
  /** A body of known length. */
  readonly body?: string
  /** A body sent in chunks, as fast as the server takes them. */
  readonly stream?: Readable
  readonly signal?: AbortSignal
  /** Receives the headers of each interim answer (RFC 9110, 15.2). */
  readonly onInterim?: (headers: ReadonlyMap<string, string>) => void
}

export interface HttpAnswer {
  readonly status: number
  /** By their names in lower case. */
  readonly headers: ReadonlyMap<string, string>
  /** To be read once. Stopping early closes the connection. */
  readonly body: AsyncIterable<Uint8Array>
}

/** Received bytes that are held before the socket is paused. */
const MAX_HELD = 256 * 1024
/** Size limit of one line, and of all headers or trailers together. Node's own parser has the same limit. */
const MAX_HEAD = 16 * 1024
const LINE_END = Buffer.from('\r\n')

const broken = (code: 'EPROTO' | 'ECONNRESET', message: string): Error => Object.assign(new Error(message), { code })
const cutShort = (): Error => broken('ECONNRESET', 'it ended in the middle of an answer')
const malformed = (what: string): Error => broken('EPROTO', `the answer is not HTTP: ${what}`)

/** The received bytes of a connection in order, and then its error, because a refusal may come with a reset. */
class Incoming {
  readonly #socket: Socket
  readonly #held: Buffer[] = []
  #size = 0
  #ended = false
  #error: Error | null = null
  #wake: () => void = () => undefined

  constructor(socket: Socket) {
    this.#socket = socket
    socket.on('data', (chunk: Buffer) => {
      this.#held.push(chunk)
      this.#size += chunk.length
      if (this.#size > MAX_HELD) socket.pause()
      this.#wake()
    })
    socket.on('error', (error) => {
      this.#error = error
      if (error.name === 'AbortError') this.#held.length = 0
    })
    const over = (): void => {
      this.#ended = true
      this.#wake()
    }
    socket.on('end', over).on('close', over)
  }

  /** At most `max` bytes, at least one, or null at the end. */
  async take(max: number): Promise<Buffer | null> {
    while (this.#held.length === 0) {
      if (this.#error !== null) throw this.#error
      if (this.#ended) return null
      this.#socket.resume()
      await new Promise<void>((resolve) => (this.#wake = resolve))
    }
    const first = this.#held.shift()!
    if (first.length > max) this.#held.unshift(first.subarray(max))
    const taken = first.length > max ? first.subarray(0, max) : first
    this.#size -= taken.length
    return taken
  }

  /** The next line, without its end. */
  async line(): Promise<string> {
    const parts: Buffer[] = []
    for (let size = 0; size < MAX_HEAD;) {
      const part = await this.take(MAX_HEAD - size)
      if (part === null) throw cutShort()
      const at = part.indexOf(10)
      parts.push(at === -1 ? part : part.subarray(0, at + 1))
      size += part.length
      if (at === -1) continue
      if (at + 1 < part.length) this.#putBack(part.subarray(at + 1))
      const line = Buffer.concat(parts).toString('latin1')
      if (!line.endsWith('\r\n')) throw malformed('a line ends without a carriage return')
      return line.slice(0, -2)
    }
    throw malformed('a line is too long')
  }

  /** The next `length` bytes, as they arrive. */
  async *exactly(length: number): AsyncGenerator<Buffer, void, undefined> {
    for (let left = length; left > 0;) {
      const part = await this.take(left)
      if (part === null) throw cutShort()
      left -= part.length
      yield part
    }
  }

  #putBack(part: Buffer): void {
    this.#held.unshift(part)
    this.#size += part.length
  }
}

type Headers = ReadonlyMap<string, string>

const readHeaders = async (incoming: Incoming): Promise<Headers> => {
  const headers = new Map<string, string>()
  let size = 0
  for (let line = await incoming.line(); line !== ''; line = await incoming.line()) {
    size += line.length
    if (size > MAX_HEAD) throw malformed('its headers are too long')
    const [, name, value] = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*(.*?)[ \t]*$/.exec(line) ?? []
    if (name === undefined || value === undefined) throw malformed('a header is not valid')
    const key = name.toLowerCase()
    if (headers.has(key) && (key === 'content-length' || key === 'transfer-encoding')) throw malformed(`duplicate ${key}`)
    headers.set(key, value)
  }
  return headers
}

/** The head of the final answer. */
const readHead = async (incoming: Incoming, { onInterim }: HttpCall): Promise<{ status: number; headers: Headers }> => {
  for (;;) {
    const status = Number(/^HTTP\/1\.[01] ([1-5][0-9]{2})(?: |$)/.exec(await incoming.line())?.[1] ?? 0)
    if (status === 0 || status === 101) throw malformed('its first line')
    const headers = await readHeaders(incoming)
    if (status >= 200) return { status, headers }
    onInterim?.(headers)
  }
}

async function* chunked(incoming: Incoming): AsyncGenerator<Buffer, void, undefined> {
  for (;;) {
    const digits = /^([0-9A-Fa-f]{1,8})[ \t]*(?:;.*)?$/.exec(await incoming.line())?.[1]
    if (digits === undefined) throw malformed('the length of a chunk')
    const length = Number.parseInt(digits, 16)
    if (length === 0) break
    yield* incoming.exactly(length)
    if ((await incoming.line()) !== '') throw malformed('a chunk is longer than announced')
  }
  await readHeaders(incoming)
}

async function* untilEnd(incoming: Incoming): AsyncGenerator<Buffer, void, undefined> {
  for (let part = await incoming.take(MAX_HELD); part !== null; part = await incoming.take(MAX_HELD)) yield part
}

/** The body, with the length that its headers give (RFC 9112, 6.3). Throws if they give two. */
const bodyOf = (incoming: Incoming, status: number, headers: Headers): AsyncGenerator<Buffer, void, undefined> => {
  const coding = headers.get('transfer-encoding')
  const length = headers.get('content-length')
  if (status === 204 || status === 304) return incoming.exactly(0)
  if (coding !== undefined) {
    if (coding.toLowerCase() !== 'chunked' || length !== undefined) throw malformed('how long it is')
    return chunked(incoming)
  }
  if (length === undefined) return untilEnd(incoming)
  if (!/^[0-9]{1,15}$/.test(length)) throw malformed('how long it is')
  return incoming.exactly(Number(length))
}

async function* closing(socket: Socket, body: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, undefined> {
  try {
    yield* body
  } finally {
    socket.destroy()
  }
}

/** Throws `bad_request` for a header that would inject another line. */
const headText = ({ method, path, headers }: HttpCall, length: string): string => {
  const lines = Object.entries({ ...headers, connection: 'close' }).map(([name, value]) => {
    // oxlint-disable-next-line no-control-regex -- control characters are what this is about
    if (/[^\t\x20-\x7e\x80-\xff]/.test(value)) throw new AppError('bad_request', `${name}: has a character that no header may have`)
    return `${name}: ${value}\r\n`
  })
  if (/[^\x21-\x7e]/.test(path)) throw new AppError('bad_request', 'the path of a request has a character that is not allowed')
  return `${method} ${path} HTTP/1.1\r\n${lines.join('')}${length}\r\n`
}

const sendChunks = (socket: Socket, stream: Readable): void => {
  stream.on('data', (part: string | Uint8Array) => {
    const bytes = typeof part === 'string' ? Buffer.from(part) : part
    if (bytes.length === 0) return
    socket.cork()
    socket.write(`${bytes.length.toString(16)}\r\n`)
    socket.write(bytes)
    const goOn = socket.write(LINE_END)
    socket.uncork()
    if (goOn) return
    stream.pause()
    socket.once('drain', () => stream.resume())
  })
  stream.on('end', () => socket.write('0\r\n\r\n'))
  stream.on('error', (error) => socket.destroy(error))
}

const send = (socket: Socket, call: HttpCall): void => {
  if (call.stream !== undefined) {
    socket.write(headText(call, 'transfer-encoding: chunked\r\n'), 'latin1')
    sendChunks(socket, call.stream)
    return
  }
  const body = Buffer.from(call.body ?? '')
  const head = headText(call, call.method === 'GET' ? '' : `content-length: ${body.length}\r\n`)
  socket.write(Buffer.concat([Buffer.from(head, 'latin1'), body]))
}

/** Ends the connection with the signal. Node's own option leaves one listener per connection on the signal. */
const endWith = (socket: Socket, signal: AbortSignal): void => {
  const end = (): void => void socket.destroy(new DOMException('the caller stopped waiting', 'AbortError'))
  if (signal.aborted) return end()
  signal.addEventListener('abort', end)
  socket.once('close', () => signal.removeEventListener('abort', end))
}

/**
 * Sends one request over a new connection, strictly HTTP/1.1 (RFC 9112). Node's own client takes longer to load than the rest of `x0x
 * exec`. Resolves when the head has arrived. Throws connection errors, `EPROTO` for an answer that is not HTTP, and `ECONNRESET` for a
 * truncated one (also while its body is read).
 */
export const httpCall = async (to: NetConnectOpts, call: HttpCall): Promise<HttpAnswer> => {
  const socket = connect(to)
  if (call.signal !== undefined) endWith(socket, call.signal)
  try {
    const incoming = new Incoming(socket)
    send(socket, call)
    const { status, headers } = await readHead(incoming, call)
    return { status, headers, body: closing(socket, bodyOf(incoming, status, headers)) }
  } catch (error) {
    socket.destroy()
    throw error
  }
}
