import type { Socket } from 'node:net'

import { TcpProxy } from './tcp-proxy.ts'

/** A TCP path between two programs that can be cut, or go silent, while both ends believe in it. */
export class CuttableProxy extends TcpProxy {
  /** What goes silent says nothing of its end either. */
  readonly #mute = new Set<Socket>()
  readonly #far = new Set<Socket>()
  #silent = false
  #refusing = false
  #swallowing = false
  /** Bytes that were read and not passed on. */
  swallowed = 0

  /** Every connection is reset. */
  cut(): void {
    for (const socket of this.sockets) socket.resetAndDestroy()
  }

  /** Nothing passes any more, in either direction, and nobody is told. */
  silence(): void {
    this.#silent = true
    this.stall()
  }

  /** What is connected now goes silent; whoever connects anew gets through. */
  stall(): void {
    for (const socket of this.sockets) {
      this.#mute.add(socket)
      socket.pause()
    }
  }

  /** The far ends lose what is connected now; the near ones are not told, and nothing answers them. */
  cutFar(): void {
    this.stall()
    for (const socket of this.#far) socket.resetAndDestroy()
  }

  /** What comes is read, and goes nowhere, until `allow`. */
  swallow(): void {
    this.#swallowing = true
  }

  /** Every connection is reset, and nobody gets through until `allow`. */
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
