import type { AbortOptions, MessageStream, StreamMuxer } from '@libp2p/interface'

import { AppError } from '../../base/errors.ts'

/** How long the answer to a ping is waited for before the connection is ended: behind a slow path's queue it takes as long as a run's output. */
export const PING_PATIENCE_MS = 15_000

/** What yamux's muxers have beside their interface. `rtt`: the last round trip in milliseconds; below 0 before the first. */
interface Pinging {
  ping(options?: AbortOptions): Promise<number>
  rtt: number
}

const isPinging = (muxer: object): muxer is Pinging => 'ping' in muxer && 'rtt' in muxer && typeof muxer.rtt === 'number'

/**
 * Ends a connection whose peer does not answer the muxer's own ping, which every connection sends by a clock of its own. libp2p's
 * monitor asks on all of them in the same moment, by a stream each: of a thousand that is more than a second's work at once.
 */
export const endUnanswered = (muxer: StreamMuxer, connection: Pick<MessageStream, 'abort'>): void => {
  if (!isPinging(muxer)) throw new TypeError('the muxer has not the members that we rely on')
  const ping = muxer.ping.bind(muxer)
  muxer.ping = async (options) => {
    let isOver = false
    const giveUp = (): void => {
      if (isOver) return
      const reason = new AppError('timeout', `no sign of life for ${PING_PATIENCE_MS / 1000} s`)
      try {
        muxer.abort(reason)
      } catch {
        // It says goodbye, which a connection that is being closed takes no more.
      }
      connection.abort(reason)
    }
    // Where this process was held up, what has come meanwhile is read before silence is judged.
    const late = setTimeout(() => setImmediate(giveUp), PING_PATIENCE_MS).unref()
    try {
      return await ping(options)
    } finally {
      isOver = true
      clearTimeout(late)
    }
  }
}

/** The last measured round trip of a connection, in milliseconds; null before the first. */
export const roundTripOf = (connection: object): number | null => {
  const muxer = 'muxer' in connection && typeof connection.muxer === 'object' ? connection.muxer : null
  return muxer !== null && isPinging(muxer) && muxer.rtt >= 0 ? muxer.rtt : null
}
