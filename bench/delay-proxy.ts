import type { Socket } from 'node:net'

import { TcpProxy } from '../test/support/tcp-proxy.ts'

/** A delayed item: bytes, or the end of one direction. */
interface Held {
  readonly at: number
  readonly bytes: Buffer | null
}

/** Maximum number of delayed bytes. It exceeds the window of both contenders. */
const MAX_HELD = 64 * 1024 * 1024

/**
 * A TCP proxy with any delay that also simulates the handshake. The dialling end receives
 * no data for one round trip, and the other end sees the connection only after 1.5 round trips.
 * It does not limit the bandwidth or the congestion window.
 */
export class DelayProxy extends TcpProxy {
  readonly #roundTripMs: () => number

  /** `target` returns the port to connect to. `roundTripMs` is called for each connection. */
  constructor(target: () => number, roundTripMs: () => number) {
    super(target)
    this.#roundTripMs = roundTripMs
  }

  protected override join(from: Socket, to: Socket, way: 'up' | 'down'): void {
    const roundTrip = this.#roundTripMs()
    const established = performance.now() + roundTrip * (way === 'up' ? 1 : 1.5)
    const queue: Held[] = []
    let held = 0
    let timer: NodeJS.Timeout | undefined
    const full = (): boolean => held + to.writableLength >= MAX_HELD
    const release = (): void => {
      timer = undefined
      const now = performance.now()
      while (queue[0] !== undefined && queue[0].at <= now) {
        const { bytes } = queue.shift()!
        if (bytes === null) to.end()
        else {
          held -= bytes.length
          to.write(bytes)
        }
      }
      if (!full()) from.resume()
      if (queue[0] !== undefined) timer = setTimeout(release, Math.max(0, queue[0].at - now))
    }
    const hold = (bytes: Buffer | null): void => {
      queue.push({ at: Math.max(performance.now(), established) + roundTrip / 2, bytes })
      held += bytes?.length ?? 0
      if (full()) from.pause()
      timer ??= setTimeout(release, Math.max(0, queue[0]!.at - performance.now()))
    }
    to.on('drain', () => from.resume())
    from.on('data', hold)
    from.on('end', () => hold(null))
    from.on('close', () => {
      if (from.readableEnded) return
      clearTimeout(timer)
      to.destroy()
    })
  }
}
