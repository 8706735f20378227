import type { Socket } from 'node:net'

import { TcpProxy } from './tcp-proxy.ts'

/** A TCP proxy that a test can cut or silence while both ends still consider the connection open. */
export class CuttableProxy extends TcpProxy {
  /** Sockets whose end the proxy does not pass on. */
  readonly #mute = new Set<Socket>()
  readonly #far = new Set<Socket>()
  #silent = false
  #refusing = false
  #swallowing = false
  /** Number of bytes that were read and not forwarded. */
  swallowed = 0

  /** Resets every connection. */
  cut(): void {
    for (const socket of this.sockets) socket.resetAndDestroy()
  }

  /** Stops forwarding in both directions without closing any connection. */
  silence(): void {
    this.#silent = true
    this.stall()
  }

  /** Silences the existing connections. New connections work. */
  stall(): void {
    for (const socket of this.sockets) {
      this.#mute.add(socket)
      socket.pause()
    }
  }

  /** Closes the far ends of the existing connections. The near ends stay open but receive no more data. */
  cutFar(): void {
    this.stall()
    for (const socket of this.#far) socket.resetAndDestroy()
  }

  /** Reads and discards all data until `allow`. */
  swallow(): void {
    this.#swallowing = true
  }

  /** Resets every connection, and refuses new ones until `allow`. */
  refuse(): void {
    this.#refusing = true
    this.cut()
  }

  allow(): void {
    this.#refusing = false
    this.#swallowing = false
  }

  protected override admits(): boolean {
    return !this.#refusing
  }

  protected override join(from: Socket, to: Socket, way: 'up' | 'down'): void {
    if (way === 'down') this.#far.add(from)
    if (this.#silent) {
      this.#mute.add(from)
      from.pause()
    }
    const passes = (): boolean => !this.#mute.has(from)
    from.on('data', (bytes) => {
      if (this.#swallowing) return void (this.swallowed += bytes.length)
      if (to.write(bytes) || !passes()) return
      from.pause()
      to.once('drain', () => {
        if (passes()) from.resume()
      })
    })
    from.on('end', () => {
      if (passes()) to.end()
    })
    from.on('close', () => {
      if (passes()) to.destroy()
      this.#mute.delete(from)
      this.#far.delete(from)
    })
  }
}
