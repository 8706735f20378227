import type { Socket } from 'node:net'

import { TcpProxy } from '../test/support/tcp-proxy.ts'

/** What waits for its time: bytes, or the end of what one side says. */
interface Held {
  readonly at: number
  readonly bytes: Buffer | null
}

/** As much as a path may hold at once: more than the windows of either contender. */
const MAX_HELD = 64 * 1024 * 1024

/**
 * A TCP path that is as long as need be, with the handshake that a real one costs: whoever dials hears
 * nothing for one round trip, and the other end hears of it only after one and a half. It has no bandwidth
 * and no congestion window of its own, for nobody.
 */
export class DelayProxy extends TcpProxy {
  readonly #roundTripMs: () => number

  /** `target`: the port behind it. `roundTripMs` is asked for each connection. */
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
