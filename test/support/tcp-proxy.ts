import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'

/** A TCP proxy between two programs. A subclass decides which data passes, and when. */
export abstract class TcpProxy {
  readonly #server: Server
  readonly #target: () => number
  protected readonly sockets = new Set<Socket>()

  /** `target` returns the port to connect to, for each connection. */
  constructor(target: () => number) {
    this.#target = target
    this.#server = createServer({ noDelay: true }, (near) => {
      if (!this.admits()) {
        near.resetAndDestroy()
        return
      }
      const far = this.dial()
      for (const socket of [near, far]) {
        this.sockets.add(socket)
        socket.on('error', () => undefined)
        socket.on('close', () => this.sockets.delete(socket))
      }
      this.join(near, far, 'up')
      this.join(far, near, 'down')
    })
  }

  async listen(): Promise<this> {
    await new Promise<void>((resolve) => this.#server.listen(0, '127.0.0.1', resolve))
    return this
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  get connections(): number {
    return this.sockets.size / 2
  }

  async close(): Promise<void> {
    for (const socket of this.sockets) socket.destroy()
    await new Promise<void>((resolve) => this.#server.close(() => resolve()))
  }

  protected admits(): boolean {
    return true
  }

  protected dial(): Socket {
    return connect({ host: '127.0.0.1', port: this.#target(), noDelay: true })
  }

  /** `up` is the direction away from the dialling end. */
  protected abstract join(from: Socket, to: Socket, way: 'up' | 'down'): void
}
