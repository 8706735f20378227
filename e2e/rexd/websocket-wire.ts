import { once } from 'node:events'

import { WebSocket } from 'ws'

import type { Home, RexdProcess, WebRexd } from './server.ts'
import type { Wire } from './wire.ts'

/** Uncompressed texts on a WebSocket. With compression, a connection would buffer too much to ever become full. */
export class WebSocketWire implements Wire {
  readonly name = 'websocket'
  readonly closed: Promise<string>
  readonly #server: WebRexd
  readonly #socket: WebSocket
  /** Whether the server ends with this client. */
  readonly #alone: boolean

  private constructor(components: { server: WebRexd; socket: WebSocket }, init: { alone: boolean }) {
    this.#server = components.server
    this.#socket = components.socket
    this.#alone = init.alone
    this.#socket.on('error', () => undefined)
    this.closed = once(this.#socket, 'close').then(
      ([code, reason]: unknown[]) => `the WebSocket was closed with ${String(code)} ${String(reason)}: ${this.process.stderr}`,
    )
  }

  static async connect(server: WebRexd, init = { alone: true }): Promise<WebSocketWire> {
    const headers = { authorization: `Bearer ${server.token}` }
    const socket = new WebSocket(`${server.url.replace('http', 'ws')}/ws`, { headers, perMessageDeflate: false })
    await once(socket, 'open')
    return new WebSocketWire({ server, socket }, init)
  }

  get home(): Home {
    return this.process.home
  }

  get process(): RexdProcess {
    return this.#server.process
  }

  send(message: string | Uint8Array): void {
    this.#socket.send(message, { binary: false })
  }

  listen(listener: (text: string) => void): void {
    this.#socket.on('message', (data: Buffer) => listener(data.toString()))
  }

  pause(): void {
    this.#socket.pause()
  }

  resume(): void {
    if (this.#socket.isPaused) this.#socket.resume()
  }

  async another(): Promise<Wire> {
    return WebSocketWire.connect(this.#server, { alone: false })
  }

  async leave(): Promise<void> {
    this.#socket.close()
    await this.closed
    if (this.#alone) await this.process.stop()
  }
}
