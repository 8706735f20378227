import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { type WebSocket, WebSocketServer } from 'ws'
import { giveBack, inOneWrite } from '../../base/buffers.ts'
import type { Timer } from '../../base/clock.ts'
import { MAX_RPC_BACKLOG, MAX_RPC_MESSAGE } from '../../protocol/limits/rexd.ts'
import { CONTENT_AS_BYTES, CONTENT_HEADER } from '../../protocol/rexd/binary-message.ts'
import type { Capability } from '../../protocol/rexd/fields.ts'
import { type RpcConnectionComponents, RpcConnection } from './connection.ts'
import { parseBinary, parseBytes, written, writtenAsBinary } from './message.ts'
import type { Arrived } from './session-events.ts'

/** Interval of pings. A WebSocket that has not answered by the next one is closed. */
export const WEBSOCKET_PING_MS = 15_000

/** The subprotocol, which a browser requests together with its token. */
const SUBPROTOCOL = 'rexd.1'
const TOKEN_PREFIX = 'bearer.'
/** Shorter messages are not compressed: at 100 Mbit/s they arrive sooner uncompressed. */
const DEFLATE_FROM = 8 * 1_024
/** Twice as fast as the default 6, for a tenth more bytes. */
const DEFLATE_LEVEL = 3

/** RFC 6455, 7.4.1: without `rexd-content`, only text messages are supported. */
const UNSUPPORTED_DATA = 1003

/** Browsers cannot set an Authorization header, so they send the token as a subprotocol. */
export const tokenOf = ({ headers }: IncomingMessage): string | undefined => {
  if (headers.authorization !== undefined) return headers.authorization
  const offered = headers['sec-websocket-protocol']?.split(',').map((one) => one.trim()) ?? []
  const token = offered.find((one) => one.startsWith(TOKEN_PREFIX))
  return token === undefined ? undefined : `Bearer ${token.slice(TOKEN_PREFIX.length)}`
}

const announcesBytes = ({ headers }: IncomingMessage): boolean => headers[CONTENT_HEADER] === CONTENT_AS_BYTES

/** REXD over WebSockets: one JSON-RPC message per message. `RpcHttpServer` checks host and token before `accept`. */
export class WebSockets {
  readonly #deps: Omit<RpcConnectionComponents, 'send'>
  readonly #available: readonly Capability[]
  readonly #server: WebSocketServer

  constructor(deps: Omit<RpcConnectionComponents, 'send'>, init: { available: readonly Capability[] }) {
    this.#deps = deps
    this.#available = init.available
    this.#server = new WebSocketServer({
      noServer: true,
      maxPayload: MAX_RPC_MESSAGE,
      perMessageDeflate: {
        threshold: DEFLATE_FROM,
        serverNoContextTakeover: true,
        clientNoContextTakeover: true,
        zlibDeflateOptions: { level: DEFLATE_LEVEL },
      },
      handleProtocols: (offered) => (offered.has(SUBPROTOCOL) ? SUBPROTOCOL : false),
    })
    this.#server.on('headers', (headers, request) => {
      if (announcesBytes(request)) headers.push(`${CONTENT_HEADER}: ${CONTENT_AS_BYTES}`)
    })
  }

  accept(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#server.handleUpgrade(request, socket, head, (webSocket) => this.#serve(webSocket, socket, announcesBytes(request)))
  }

  close(): void {
    for (const socket of this.#server.clients) socket.terminate()
    this.#server.close()
  }

  #serve(socket: WebSocket, stream: Duplex, takesBytes: boolean): void {
    const deps = { ...this.#deps, send: sender(socket, stream, takesBytes), arrived: arrivalsAt(socket) }
    const connection = new RpcConnection(deps, { door: 'websocket', available: this.#available, resumes: true })
    const stopLooking = this.#lookAfter(socket)
    const take = inOrder(socket, connection)
    socket.on('message', (data: Buffer, isBinary: boolean) => {
      if (isBinary && !takesBytes) socket.close(UNSUPPORTED_DATA, 'texts only')
      else take({ data, isBinary })
    })
    // ws emits `close` after every `error`.
    socket.on('error', () => undefined)
    socket.on('close', () => {
      stopLooking()
      void connection.close()
    })
  }

  /** Detects dead connections. */
  #lookAfter(socket: WebSocket): () => void {
    let alive = true
    let timer: Timer | null = null
    socket.on('pong', () => (alive = true))
    const look = (): void => {
      // No pong can arrive while either side does not read. TCP itself detects a peer that takes no bytes.
      if (!alive && !socket.isPaused && socket.bufferedAmount === 0) return socket.terminate()
      alive = false
      socket.ping()
      timer = this.#deps.clock.setTimeout(look, WEBSOCKET_PING_MS)
    }
    timer = this.#deps.clock.setTimeout(look, WEBSOCKET_PING_MS)
    return () => timer?.cancel()
  }
}

interface SocketMessage {
  readonly data: Buffer
  readonly isBinary: boolean
}

/**
 * Gives messages to the connection in order and pauses the socket when it is full. A paused socket still emits the messages of the chunk it
 * has read: at most 64 KiB, which deflate expands at most 1032 times.
 */
const inOrder = (socket: WebSocket, connection: RpcConnection): ((message: SocketMessage) => void) => {
  const unread: SocketMessage[] = []
  let full = false
  const goOn = (): void => {
    full = false
    for (let next = unread.shift(); next !== undefined; next = full ? undefined : unread.shift()) give(next)
    if (!full) socket.resume()
  }
  const give = ({ data, isBinary }: SocketMessage): void => {
    const room = connection.take(isBinary ? parseBinary(data) : parseBytes(data))
    if (room === undefined) return
    full = true
    socket.pause()
    void room.then(goOn)
  }
  socket.on('close', () => unread.splice(0))
  return (message) => (full ? void unread.push(message) : give(message))
}

/** A pong follows everything that was sent before its ping, and also answers earlier pings (RFC 6455, 5.5.3). */
const arrivalsAt = (socket: WebSocket): Arrived => {
  let asked = 0
  const waiting = new Map<number, () => void>()
  socket.on('pong', (data) => {
    const answered = Number(data.toString('latin1'))
    for (const [number, arrived] of waiting) {
      if (number > answered || Number.isNaN(answered)) return
      waiting.delete(number)
      arrived()
    }
  })
  return async () => {
    const { promise, resolve } = Promise.withResolvers<void>()
    waiting.set(++asked, resolve)
    if (socket.readyState === socket.OPEN) socket.ping(String(asked))
    await promise
  }
}

const sender =
  (socket: WebSocket, stream: Duplex, takesBytes: boolean) =>
  (message: object | string): void | Promise<void> => {
    if (socket.readyState !== socket.OPEN) return undefined
    const sent = Promise.withResolvers<void>()
    const binary = takesBytes ? writtenAsBinary(message) : null
    if (binary !== null) {
      // Two fragments, so that the content is not copied.
      socket.send(binary.head, { binary: true, compress: false, fin: false })
      socket.send(binary.content, { binary: true, compress: false }, (error) => {
        if (!error) giveBack(binary.content)
        sent.resolve()
      })
      return socket.bufferedAmount > MAX_RPC_BACKLOG ? sent.promise : undefined
    }
    inOneWrite(stream)
    const text = written(message)
    // Base64 is not compressed: most of it already was, and at 100 Mbit/s compressing the rest saves no time.
    const compress = typeof text === 'string'
    // Also called with an error when the connection is gone.
    socket.send(text, { binary: false, compress }, () => sent.resolve())
    return socket.bufferedAmount > MAX_RPC_BACKLOG ? sent.promise : undefined
  }
