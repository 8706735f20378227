import type { IncomingMessage } from 'node:http'
import type { Duplex } from 'node:stream'
import { type WebSocket, WebSocketServer } from 'ws'
import { inOneWrite } from '../../base/buffers.ts'
import type { Timer } from '../../base/clock.ts'
import { MAX_RPC_BACKLOG, MAX_RPC_MESSAGE } from '../../protocol/limits/rexd.ts'
import type { Capability } from '../../protocol/rexd/fields.ts'
import { type RpcConnectionComponents, RpcConnection } from './connection.ts'
import { parseBytes, written } from './message.ts'
import type { Arrived } from './session-events.ts'

/** How often a WebSocket is asked whether it lives; one that has not answered by the next time is given up. */
export const WEBSOCKET_PING_MS = 15_000

/** The name of what is spoken, which a browser asks for beside its token. */
const SUBPROTOCOL = 'rexd.1'
const TOKEN_PREFIX = 'bearer.'
/** Shorter messages are not compressed: at 100 Mbit/s they arrive sooner as they are. */
const DEFLATE_FROM = 8 * 1_024
/** Twice as fast as the usual 6, for a tenth more bytes. */
const DEFLATE_LEVEL = 3

/** RFC 6455, 7.4.1: only texts are understood. */
const UNSUPPORTED_DATA = 1003

/** A browser cannot send a header of its own: there the token is one of the subprotocols. */
export const tokenOf = ({ headers }: IncomingMessage): string | undefined => {
  if (headers.authorization !== undefined) return headers.authorization
  const offered = headers['sec-websocket-protocol']?.split(',').map((one) => one.trim()) ?? []
  const token = offered.find((one) => one.startsWith(TOKEN_PREFIX))
  return token === undefined ? undefined : `Bearer ${token.slice(TOKEN_PREFIX.length)}`
}

/** REXD over WebSockets: one JSON-RPC message in each text. `RpcHttpServer` has checked host and token before `accept`. */
export class WebSockets {
  readonly #components: Omit<RpcConnectionComponents, 'send'>
  readonly #available: readonly Capability[]
  readonly #server: WebSocketServer

  constructor(components: Omit<RpcConnectionComponents, 'send'>, init: { available: readonly Capability[] }) {
    this.#components = components
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
  }

  accept(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    this.#server.handleUpgrade(request, socket, head, (webSocket) => this.#serve(webSocket, socket))
  }

  /** Hangs up on everybody. */
  close(): void {
    for (const socket of this.#server.clients) socket.terminate()
    this.#server.close()
  }

  /** `stream`: what carries it. */
  #serve(socket: WebSocket, stream: Duplex): void {
    const components = { ...this.#components, send: sender(socket, stream), arrived: arrivalsAt(socket) }
    const connection = new RpcConnection(components, { door: 'websocket', available: this.#available, resumes: true })
    const stopLooking = this.#lookAfter(socket)
    const take = inOrder(socket, connection)
    socket.on('message', (data: Buffer, isBinary: boolean) => {
      if (isBinary) socket.close(UNSUPPORTED_DATA, 'texts only')
      else take(data)
    })
    // ws emits `close` behind every `error`.
    socket.on('error', () => undefined)
    socket.on('close', () => {
      stopLooking()
      void connection.close()
    })
  }

  /** A connection that died without a word is noticed by its silence. */
  #lookAfter(socket: WebSocket): () => void {
    let alive = true
    let timer: Timer | null = null
    socket.on('pong', () => (alive = true))
    const look = (): void => {
      // No pong can come while either side does not read; TCP itself gives up a peer that takes no byte.
      if (!alive && !socket.isPaused && socket.bufferedAmount === 0) return socket.terminate()
      alive = false
      socket.ping()
      timer = this.#components.clock.setTimeout(look, WEBSOCKET_PING_MS)
    }
    timer = this.#components.clock.setTimeout(look, WEBSOCKET_PING_MS)
    return () => timer?.cancel()
  }
}

/**
 * Gives messages to the connection, and none while it has enough. A socket that was paused still emits the messages of
 * the chunk that it has read: at most 64 KiB, of which deflate makes at most 1032 times as much.
 */
const inOrder = (socket: WebSocket, connection: RpcConnection): ((data: Buffer) => void) => {
  const unread: Buffer[] = []
  let full = false
  const goOn = (): void => {
    full = false
    for (let next = unread.shift(); next !== undefined; next = full ? undefined : unread.shift()) give(next)
    if (!full) socket.resume()
  }
  const give = (data: Buffer): void => {
    const room = connection.take(parseBytes(data))
    if (room === undefined) return
    full = true
    socket.pause()
    void room.then(goOn)
  }
  socket.on('close', () => unread.splice(0))
  return (data) => (full ? void unread.push(data) : give(data))
}

/** By pings: a pong comes behind everything that was sent before its ping, and stands for the pings before it (RFC 6455, 5.5.3). */
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
  (socket: WebSocket, stream: Duplex) =>
  (message: object | string): void | Promise<void> => {
    if (socket.readyState !== socket.OPEN) return undefined
    const sent = Promise.withResolvers<void>()
    inOneWrite(stream)
    const text = written(message)
    // Base64: most of it was compressed before, and for the rest a line of 100 Mbit/s takes no longer than compressing.
    const compress = typeof text === 'string'
    // Called with an error too, when the connection is gone.
    socket.send(text, { binary: false, compress }, () => sent.resolve())
    return socket.bufferedAmount > MAX_RPC_BACKLOG ? sent.promise : undefined
  }
