import type { IncomingMessage } from 'node:http'
import { connect as connectSocket } from 'node:net'
import { type ClientOptions, WebSocket } from 'ws'
import { MAX_QUOTED, RexdProtocolError, quote, textOf } from './errors.ts'
import { type Deferred, deferred, pause, whenAborted } from './promises.ts'
import { CLOSE_KILL_MS, MAX_INCOMING_MESSAGE, type Transport, type TransportEvents, type TransportFactory } from './transport.ts'

/** From the dialling to the end of the handshake: three tries of TCP, and a slow server. */
const HANDSHAKE_MS = 10_000
/** A server that lives says something in so long: it is asked every time, and `rexd` asks of itself every 15 s. */
const SILENCE_MS = 20_000
/** Bytes that wait to be sent, from where on no more are given to the socket. */
export const MAX_UNSENT = 1024 * 1024

export interface WebSocketOptions {
  /**
   * Where `rexd --http` listens: `ws://host:port/ws`, `wss://…`, or `unix:/path` of a socket. `http:` and `https:` do as
   * well, and `/ws` need not be said. Over `ws:` whoever is on the way can read the token: there it belongs on this host.
   */
  readonly url: string
  /** What is in the server's `token_file`; a function is asked at each connection. */
  readonly token: string | (() => string | Promise<string>)
  /** PEM texts: whom to believe in place of the system's authorities, and who we are. */
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string }
  /** A server that says nothing for so long, also when it is asked, is given up; 20,000 milliseconds unless told. */
  readonly silenceMs?: number
}

/** RFC 6455, 7.4.1. */
const NORMAL = 1000
const GOING_AWAY = 1001
const NO_STATUS = 1005
const ABNORMAL = 1006

interface Address {
  /** For the text of an error. */
  readonly name: string
  readonly url: string
  readonly options: ClientOptions
}

const isLoopback = (hostname: string): boolean => hostname === 'localhost' || hostname === '[::1]' || hostname.startsWith('127.')

/** Throws a `TypeError`. */
const addressOf = ({ url, tls = {} }: WebSocketOptions): Address => {
  if (typeof url !== 'string') throw new TypeError('url: where rexd listens, as ws://127.0.0.1:7680')
  if (url.startsWith('unix:')) {
    const path = url.slice('unix:'.length)
    if (!path.startsWith('/')) throw new TypeError(`url: ${quote(url)}: behind unix: comes an absolute path`)
    const options = { createConnection: () => connectSocket({ path }), perMessageDeflate: false }
    return { name: quote(url), url: 'ws://localhost/ws', options }
  }
  const parsed = URL.canParse(url) ? new URL(url) : null
  if (parsed === null || !/^(ws|http)s?:$/.test(parsed.protocol)) throw new TypeError(`url: ${quote(url)} is none of ws:, wss: and unix:`)
  if (parsed.username !== '' || parsed.password !== '') throw new TypeError('url: who asks is said by the token')
  parsed.protocol = parsed.protocol.replace('http', 'ws')
  if (parsed.pathname === '/') parsed.pathname = '/ws'
  // Compression costs more than it saves on one host.
  return { name: quote(parsed.href), url: parsed.href, options: { ...tls, perMessageDeflate: !isLoopback(parsed.hostname) } }
}

/** One message in each text. */
class SocketTransport implements Transport {
  readonly #socket: WebSocket
  readonly #name: string
  readonly #events: TransportEvents
  readonly #timer: NodeJS.Timeout
  readonly #closed = new AbortController()
  /** What went wrong first. */
  #error: Error | null = null
  #drained: Deferred<void> | null = null
  #heard = true
  #ended = false

  constructor(socket: WebSocket, events: TransportEvents, init: { name: string; silenceMs: number }) {
    this.#socket = socket
    this.#events = events
    this.#name = init.name
    socket.on('message', (data: Buffer, isBinary: boolean) => this.#read(data, isBinary))
    for (const name of ['ping', 'pong'] as const) socket.on(name, () => void (this.#heard = true))
    socket.on('error', (error: Error) => this.#fail(error))
    socket.on('close', (code: number, reason: Buffer) => this.#end(code, reason.toString('utf8')))
    // By `setImmediate`: where this process was held up, what has arrived meanwhile is read before silence is judged.
    this.#timer = setInterval(() => setImmediate(() => this.#poll(init.silenceMs)), init.silenceMs)
    this.#timer.unref()
  }

  send(text: string): void | Promise<void> {
    if (this.#socket.readyState !== WebSocket.OPEN) return undefined
    this.#socket.send(text, () => this.#settle())
    if (this.#socket.bufferedAmount <= MAX_UNSENT) return undefined
    this.#drained ??= deferred<void>()
    return this.#drained.promise
  }

  pause(): void {
    this.#socket.pause()
  }

  resume(): void {
    this.#heard = true
    this.#socket.resume()
  }

  /** Sends Close behind what was sent, drops what still comes, and destroys the socket where no answer comes. */
  async close(): Promise<void> {
    this.#ended = true
    this.#socket.resume()
    this.#socket.close(NORMAL)
    await pause(CLOSE_KILL_MS, this.#closed.signal)
    this.#socket.terminate()
    await pause(CLOSE_KILL_MS, this.#closed.signal)
  }

  #read(data: Buffer, isBinary: boolean): void {
    this.#heard = true
    if (this.#ended) return
    if (!isBinary) return this.#events.onMessage(data.toString('utf8'))
    this.#fail(new RexdProtocolError('a message is no text'))
    this.#socket.terminate()
  }

  /** While reading is paused, silence says nothing; the ping still fails where the connection is dead. */
  #poll(silenceMs: number): void {
    if (this.#ended) return
    if (this.#heard || this.#socket.isPaused) {
      this.#heard = false
      if (this.#socket.readyState === WebSocket.OPEN) this.#socket.ping()
      return
    }
    this.#fail(new Error(`${this.#name} has said nothing for ${silenceMs} ms`))
    this.#socket.terminate()
  }

  #fail(error: NodeJS.ErrnoException): void {
    // What the library calls so is a breach of RFC 6455, or a message that is too long.
    this.#error ??= error.code?.startsWith('WS_ERR_') === true ? new RexdProtocolError(error.message, { cause: error }) : error
  }

  #end(code: number, reason: string): void {
    clearInterval(this.#timer)
    this.#closed.abort()
    this.#settle()
    if (this.#ended) return
    this.#ended = true
    const inOrder = [NORMAL, GOING_AWAY, NO_STATUS].includes(code)
    const how = code === ABNORMAL ? 'the connection was lost' : `closed with ${code}${reason === '' ? '' : `: ${quote(reason)}`}`
    this.#events.onClosed(this.#error ?? (inOrder ? null : new Error(`${this.#name}: ${how}`)))
  }

  #settle(): void {
    if (this.#socket.readyState === WebSocket.OPEN && this.#socket.bufferedAmount > MAX_UNSENT) return
    this.#drained?.resolve()
    this.#drained = null
  }
}

/** The error of an answer that refuses the handshake, with the beginning of its body. */
const refusalOf = async (response: IncomingMessage): Promise<Error> => {
  let text = ''
  for await (const part of response as AsyncIterable<Buffer>) {
    text += part.toString('utf8')
    if (text.length > MAX_QUOTED) break
  }
  return new Error(`refused with ${response.statusCode}: ${quote(text)}`)
}

/**
 * REXD by a WebSocket, also over a socket of the file system. Over it sessions may be `resumable`, and the client connects
 * again unless told otherwise. Throws a `TypeError` for a URL that is none, and without a token.
 */
export const webSocket = (options: WebSocketOptions): TransportFactory => {
  const address = addressOf(options)
  const { name, url } = address
  const { token, silenceMs = SILENCE_MS } = options
  // For callers that no compiler checks.
  if (typeof token !== 'string' && typeof token !== 'function')
    throw new TypeError("token: what is in the server's token_file, or what asks for it")
  const open = async (events: TransportEvents, signal: AbortSignal): Promise<Transport> => {
    const secret = typeof token === 'string' ? token : await token()
    signal.throwIfAborted()
    const socket = new WebSocket(url, {
      ...address.options,
      headers: { authorization: `Bearer ${secret}` },
      handshakeTimeout: HANDSHAKE_MS,
      maxPayload: MAX_INCOMING_MESSAGE,
    })
    const release = whenAborted(signal, () => socket.terminate())
    try {
      return await new Promise<Transport>((resolve, reject) => {
        socket.once('unexpected-response', (_request, response) => {
          refusalOf(response)
            .then(reject, reject)
            .finally(() => socket.terminate())
        })
        socket.once('error', reject)
        // In this very call: messages may stand behind the handshake in what was read.
        socket.once('open', () => resolve(new SocketTransport(socket, events, { name, silenceMs })))
      })
    } catch (error) {
      throw new Error(`${name} cannot be reached: ${reasonOf(error)}`, { cause: error })
    } finally {
      release()
    }
  }
  return { name, again: true, keepsSessions: true, open }
}

/** OpenSSL takes the beginning of an answer without TLS for its version, and says where in its source it did. */
const reasonOf = (error: unknown): string => {
  const text = textOf(error).trimEnd()
  return text.includes('wrong version number') ? 'whoever listens there does not speak TLS: without it the URL begins with ws:' : text
}
