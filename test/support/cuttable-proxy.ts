import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net'

/** A TCP path between two programs that can be cut, or go silent, while both ends believe in it. */
export class CuttableProxy {
  readonly #server: Server
  readonly #sockets = new Set<Socket>()
  /** What goes silent says nothing of its end either. */
  readonly #mute = new Set<Socket>()
  #silent = false
  #refusing = false

  private constructor(target: () => number) {
    this.#server = createServer((near) => {
      if (this.#refusing) {
        near.resetAndDestroy()
        return
      }
      const far = connect({ host: '127.0.0.1', port: target() })
      this.#join(near, far)
      this.#join(far, near)
    })
  }

  /** `target`: the port behind it, asked at each connection. */
  static async listen(target: () => number): Promise<CuttableProxy> {
    const proxy = new CuttableProxy(target)
    await new Promise<void>((resolve) => proxy.#server.listen(0, '127.0.0.1', resolve))
    return proxy
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port
  }

  get connections(): number {
    return this.#sockets.size / 2
  }

  /** Every connection is reset. */
  cut(): void {
    for (const socket of this.#sockets) socket.resetAndDestroy()
  }

  /** Nothing passes any more, in either direction, and nobody is told. */
  silence(): void {
    this.#silent = true
    this.stall()
  }

  /** What is connected now goes silent; whoever connects anew gets through. */
  stall(): void {
    for (const socket of this.#sockets) {
      this.#mute.add(socket)
      socket.pause()
    }
  }

  /** Every connection is reset, and nobody gets through until `allow`. */
  refuse(): void {
    this.#refusing = true
    this.cut()
  }

  allow(): void {
    this.#refusing = false
  }

  async close(): Promise<void> {
    for (const socket of this.#sockets) socket.destroy()
    await new Promise<void>((resolve) => this.#server.close(() => resolve()))
  }

  #join(from: Socket, to: Socket): void {
    this.#sockets.add(from)
    if (this.#silent) {
      this.#mute.add(from)
      from.pause()
    }
    const passes = (): boolean => !this.#mute.has(from)
    from.on('data', (bytes) => {
      if (to.write(bytes) || !passes()) return
      from.pause()
      to.once('drain', () => {
        if (passes()) from.resume()
      })
    })
    from.on('error', () => undefined)
    from.on('end', () => {
      if (passes()) to.end()
    })
    from.on('close', () => {
      this.#sockets.delete(from)
      if (passes()) to.destroy()
      this.#mute.delete(from)
    })
  }
}
