import type { Socket } from 'node:net'

import { TcpProxy } from './tcp-proxy.ts'

const TICK_MS = 10

/** A TCP proxy that reads without limit and forwards answers at a fixed rate. It simulates the queue of a narrow uplink. */
export class SlowProxy extends TcpProxy {
  readonly #bytesPerSecond: number

  constructor(target: () => number, init: { bytesPerSecond: number }) {
    super(target)
    this.#bytesPerSecond = init.bytesPerSecond
  }

  protected override join(from: Socket, to: Socket, way: 'up' | 'down'): void {
    if (way === 'up') {
      from.on('data', (bytes) => to.write(bytes))
      from.on('close', () => to.destroy())
      return
    }
    let queue: Buffer[] = []
    const timer = setInterval(() => {
      const waiting = Buffer.concat(queue)
      const passed = Math.min(waiting.length, (this.#bytesPerSecond * TICK_MS) / 1000)
      if (passed > 0) to.write(waiting.subarray(0, passed))
      queue = passed < waiting.length ? [waiting.subarray(passed)] : []
    }, TICK_MS)
    from.on('data', (bytes) => queue.push(bytes))
    from.on('close', () => {
      clearInterval(timer)
      to.destroy()
    })
  }
}
