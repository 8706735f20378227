import type { IncomingMessage } from 'node:http'
import { connect as connectSocket } from 'node:net'
import { type ClientOptions, WebSocket } from 'ws'
import { CONTENT_AS_BYTES, CONTENT_HEADER, contentHead, splitContent } from '../protocol/rexd/binary-message.ts'
import { MAX_QUOTED, RexdProtocolError, quote, textOf } from './errors.ts'
import { type Deferred, deferred, pause, whenAborted } from './promises.ts'
import { CLOSE_KILL_MS, MAX_INCOMING_MESSAGE, type Transport, type TransportEvents, type TransportFactory } from './transport.ts'

/** Timeout from dialling to the end of the handshake. Three TCP attempts and a slow server fit. */
const HANDSHAKE_MS = 10_000
/** A live server sends something in this time. The client pings, and `rexd` itself pings every 15 s. */
const SILENCE_MS = 20_000
/** Unsent bytes above which the socket accepts no more. */
export const MAX_UNSENT = 1024 * 1024

export interface WebSocketOptions {
  /**
   * The address of `rexd --http` is `ws://host:port/ws`, `wss://…`, or `unix:/path` of a socket. `http:` and `https:` also work, and `/ws`
   * may be omitted. With `ws:` the token can be read on the network, so use it on this host only.
   */
  readonly url: string
  /** The content of the server's `token_file`. A function is called for each connection. */
  readonly token: string | (() => string | Promise<string>)
  /** PEM texts of authorities to trust instead of the system's, and of the client certificate. */
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string }
  /** Milliseconds without any message, despite pings, after which the server counts as lost. The default is 20,000. */
  readonly silenceMs?: number
}

/** RFC 6455, 7.4.1. */
const NORMAL = 1000
const GOING_AWAY = 1001
const NO_STATUS = 1005
const ABNORMAL = 1006

interface Address {
  /** For error messages. */
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
    if (!path.startsWith('/')) throw new TypeError(`url: ${quote(url)}: unix: needs an absolute path`)
    const options = { createConnection: () => connectSocket({ path }), perMessageDeflate: false }
    return { name: quote(url), url: 'ws://localhost/ws', options }
  }
  const parsed = URL.canParse(url) ? new URL(url) : null
  if (parsed === null || !/^(ws|http)s?:$/.test(parsed.protocol)) throw new TypeError(`url: ${quote(url)} is not a ws:, wss: or unix: URL`)
  if (parsed.username !== '' || parsed.password !== '')
    throw new TypeError('url: must not have a user or password; the token identifies the client')
  parsed.protocol = parsed.protocol.replace('http', 'ws')
  if (parsed.pathname === '/') parsed.pathname = '/ws'
  // Compression costs more than it saves on one host.
  return { name: quote(parsed.href), url: parsed.href, options: { ...tls, perMessageDeflate: !isLoopback(parsed.hostname) } }
}

/** One message in each text or binary message. */
class SocketTransport implements Transport {
  readonly sendContent: Transport['sendContent']
  readonly #socket: WebSocket
  readonly #name: string
  readonly #events: TransportEvents
  readonly #timer: NodeJS.Timeout
  readonly #closed = new AbortController()
  #error: Error | null = null
  #drained: Deferred<void> | null = null
  #heard = true
  #ended = false

  constructor(socket: WebSocket, events: TransportEvents, init: { name: string; silenceMs: number; takesBytes: boolean }) {
    this.#socket = socket
    this.sendContent = init.takesBytes ? (text, content) => this.#sendContent(text, content) : undefined
    this.#events = events
    this.#name = init.name
    socket.on('message', (data: Buffer, isBinary: boolean) => this.#read(data, isBinary))
    for (const name of ['ping', 'pong'] as const) socket.on(name, () => void (this.#heard = true))
    socket.on('error', (error: Error) => this.#fail(error))
    socket.on('close', (code: number, reason: Buffer) => this.#end(code, reason.toString('utf8')))
    // After this process was blocked, `setImmediate` lets it read what has arrived before it checks for silence.
    this.#timer = setInterval(() => setImmediate(() => this.#poll(init.silenceMs)), init.silenceMs)
    this.#timer.unref()
  }

  send(text: string): void | Promise<void> {
    if (this.#socket.readyState !== WebSocket.OPEN) return undefined
    this.#socket.send(text, () => this.#settle())
    return this.#room()
  }

  pause(): void {
    this.#socket.pause()
  }

  resume(): void {
    this.#heard = true
    this.#socket.resume()
  }

  /** Sends Close after the pending messages, drops further input, and destroys the socket if no answer comes. */
  async close(): Promise<void> {
    this.#ended = true
    this.#socket.resume()
    this.#socket.close(NORMAL)
    await pause(CLOSE_KILL_MS, this.#closed.signal)
    this.#socket.terminate()
    await pause(CLOSE_KILL_MS, this.#closed.signal)
  }

  /** Like base64, contents are not compressed. */
  #sendContent(text: string, content: Uint8Array): void | Promise<void> {
    if (this.#socket.readyState !== WebSocket.OPEN) return undefined
    this.#socket.send(contentHead(text), { binary: true, compress: false, fin: false })
    this.#socket.send(content, { binary: true, compress: false }, () => this.#settle())
    return this.#room()
  }

  #room(): void | Promise<void> {
    if (this.#socket.bufferedAmount <= MAX_UNSENT) return undefined
    this.#drained ??= deferred<void>()
    return this.#drained.promise
  }

  #read(data: Buffer, isBinary: boolean): void {
    this.#heard = true
    if (this.#ended) return
    if (!isBinary) return this.#events.onMessage(data.toString('utf8'))
    const split = this.sendContent === undefined ? null : splitContent(data)
    if (split !== null) return this.#events.onMessage(split.json.toString('utf8'), split.content)
    this.#fail(new RexdProtocolError('a message is not text'))
    this.#socket.terminate()
  }

  /** While reading is paused, silence is expected. The ping still fails on a dead connection. */
  #poll(silenceMs: number): void {
    if (this.#ended) return
    if (this.#heard || this.#socket.isPaused) {
      this.#heard = false
      if (this.#socket.readyState === WebSocket.OPEN) this.#socket.ping()
      return
    }
    this.#fail(new Error(`${this.#name} has sent no data for ${silenceMs} ms`))
    this.#socket.terminate()
  }

  #fail(error: NodeJS.ErrnoException): void {
    // Errors with this code are violations of RFC 6455 or messages that are too long.
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

/** The error for a refused handshake, with the beginning of the answer's body. */
const refusalOf = async (response: IncomingMessage): Promise<Error> => {
  let text = ''
  for await (const part of response as AsyncIterable<Buffer>) {
    text += part.toString('utf8')
    if (text.length > MAX_QUOTED) break
  }
  return new Error(`refused with ${response.statusCode}: ${quote(text)}`)
}

/**
 * REXD over a WebSocket, also on a unix socket. Sessions can be `resumable`, and the client reconnects by default. Throws a `TypeError`
 * for an invalid URL or a missing token.
 */
export const webSocket = (options: WebSocketOptions): TransportFactory => {
  const address = addressOf(options)
  const { name, url } = address
  const { token, silenceMs = SILENCE_MS } = options
  // For callers without a compiler.
  if (typeof token !== 'string' && typeof token !== 'function')
    throw new TypeError("token: what is in the server's token_file, or what asks for it")
  const open = async (events: TransportEvents, signal: AbortSignal): Promise<Transport> => {
    const secret = typeof token === 'string' ? token : await token()
    signal.throwIfAborted()
    const socket = new WebSocket(url, {
      ...address.options,
      headers: { authorization: `Bearer ${secret}`, [CONTENT_HEADER]: CONTENT_AS_BYTES },
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
        let takesBytes = false
        socket.once('upgrade', ({ headers }) => (takesBytes = headers[CONTENT_HEADER] === CONTENT_AS_BYTES))
        // In the same call, because messages may follow the handshake in the same read.
        socket.once('open', () => resolve(new SocketTransport(socket, events, { name, silenceMs, takesBytes })))
      })
    } catch (error) {
      throw new Error(`${name} cannot be reached: ${reasonOf(error)}`, { cause: error })
    } finally {
      release()
    }
  }
  return { name, again: true, keepsSessions: true, open }
}

/** OpenSSL reads a plain answer as a TLS version, and its message names a line of its source. */
const reasonOf = (error: unknown): string => {
  const text = textOf(error).trimEnd()
  return text.includes('wrong version number') ? 'the server does not use TLS: use a URL that begins with ws:' : text
}
