import type { Socket } from 'node:net'

import { TcpProxy } from '../test/support/tcp-proxy.ts'

/** A TCP proxy that counts the forwarded bytes. */
export class CountingProxy extends TcpProxy {
  readonly bytes = { up: 0, down: 0 }

  protected override join(from: Socket, to: Socket, way: 'up' | 'down'): void {
    from.on('data', (chunk: Buffer) => {
      this.bytes[way] += chunk.length
      if (to.write(chunk)) return
      from.pause()
      to.once('drain', () => from.resume())
    })
    from.on('close', () => to.destroy())
  }
}
