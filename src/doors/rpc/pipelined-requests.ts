import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'
import { AppError } from '../../base/errors.ts'
import { MAX_RPC_PENDING } from '../../protocol/rexd-limits.ts'

/** Requests that are pipelined on one connection (RFC 9112, 9.3.2) are answered one after the other, so that it takes no more places than others. */
export class PipelinedRequests {
  readonly #queues = new WeakMap<Duplex, { length: number; last: Promise<void> }>()

  /** Resolves when every earlier question of this connection is answered. Hangs up, and throws, where too many wait. */
  async wait({ socket }: IncomingMessage, response: ServerResponse): Promise<void> {
    const queue = this.#queues.get(socket) ?? { length: 0, last: Promise.resolve() }
    this.#queues.set(socket, queue)
    const before = queue.last
    queue.length += 1
    queue.last = new Promise((resolve) => response.once('close', resolve))
    response.once('close', () => (queue.length -= 1))
    if (queue.length > MAX_RPC_PENDING) {
      socket.destroy()
      throw new AppError('resource_limit', 'too many questions on one connection that wait for one before them')
    }
    await before
  }
}
