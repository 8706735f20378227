import { type Socket, isIPv6 } from 'node:net'
import { networkOf } from '../base/ip-network.ts'

const LOOPBACK = /^(?:::ffff:)?127\.|^::1$/

/** Where a connection comes from, an IPv6 host by its /64; null: from this machine, where one address is everybody's. */
export const sourceOf = (address: string | undefined): string | null => {
  if (address === undefined || LOOPBACK.test(address)) return null
  // With a point: an address of IPv4, in that of a listener for both.
  return isIPv6(address) && !address.includes('.') ? networkOf(address) : address
}

/** Connections of callers who have not shown the token: of too many the oldest is hung up, so that they keep nobody else out. */
export class Unproven {
  /** The oldest first. */
  readonly #sockets = new Map<Socket, string | null>()
  readonly #max: { readonly total: number; readonly perAddress: number }

  constructor(init: { readonly total: number; readonly perAddress: number }) {
    this.#max = init
  }

  /** A connection that was just made. */
  add(socket: Socket): void {
    const source = sourceOf(socket.remoteAddress)
    this.#sockets.set(socket, source)
    socket.once('close', () => this.#sockets.delete(socket))
    const same = source === null ? [] : [...this.#sockets].filter(([, other]) => other === source)
    if (same.length > this.#max.perAddress) this.#hangUp(same[0]![0])
    else if (this.#sockets.size > this.#max.total) this.#hangUp(this.#sockets.keys().next().value!)
  }

  /** Its place is free at once: what comes in the same turn costs another, not the same again. */
  #hangUp(socket: Socket): void {
    this.#sockets.delete(socket)
    socket.destroy()
  }

  /** Its caller has shown the token. Over TLS the socket of a request is another object, with the same ends. */
  prove(socket: Socket): void {
    if (this.#sockets.delete(socket) || socket.remotePort === undefined) return
    for (const one of this.#sockets.keys())
      if (one.remotePort === socket.remotePort && one.remoteAddress === socket.remoteAddress) this.#sockets.delete(one)
  }
}
