import type { AbortOptions, MessageStream, StreamMuxer } from '@libp2p/interface'
import { AppError } from '../../base/errors.ts'

/** A connection that is silent for this time while a ping waits for its answer is dead. */
export const PING_PATIENCE_MS = 15_000
/** No ping is sent if something arrived within this time. */
export const HEARD_MS = 10_000
/** A measured round trip is valid for this time. Then a ping is sent in any case. */
export const ROUND_TRIP_MS = 60_000

/** Private members of yamux's muxer. `rtt` is the last round trip in milliseconds, negative before the first. */
interface Pinging {
  ping(options?: AbortOptions): Promise<number>
  onData(data: unknown): void
  rtt: number
}

const isPinging = (muxer: object): muxer is Pinging =>
  'ping' in muxer && 'onData' in muxer && 'rtt' in muxer && typeof muxer.rtt === 'number'

/**
 * Ends a connection whose peer does not answer yamux's ping, which each connection sends by its own timer. libp2p's monitor would open a
 * stream on all connections at once. With a thousand of them that takes more than a second. Any received data counts as a sign of life, so
 * a busy peer is not pinged. A dead connection ends at most 35 s after its last data.
 */
export const endUnanswered = (muxer: StreamMuxer, connection: Pick<MessageStream, 'abort'>): void => {
  if (!isPinging(muxer)) throw new TypeError('the muxer lacks members that x0x uses')
  const [ping, onData] = [muxer.ping.bind(muxer), muxer.onData.bind(muxer)]
  const last = { heard: Number.NEGATIVE_INFINITY, ping: Number.NEGATIVE_INFINITY }
  muxer.onData = (data) => {
    last.heard = performance.now()
    onData(data)
  }
  muxer.ping = async (options) => {
    const now = performance.now()
    if (now - last.heard < HEARD_MS && now - last.ping < ROUND_TRIP_MS) return muxer.rtt
    // The first ping is sent while the connection is being made, so its round trip is too long. The next ping follows soon.
    if (muxer.rtt >= 0) last.ping = now
    let isOver = false
    // If the event loop lagged, data that arrived meanwhile is read before the check.
    const judgeIn = (ms: number): NodeJS.Timeout => setTimeout(() => setImmediate(judge), ms).unref()
    const judge = (): void => {
      if (isOver) return
      // On a slow path, the answer may queue behind other data, so silence counts from the last data.
      const left = last.heard > now ? last.heard + PING_PATIENCE_MS - performance.now() : 0
      if (left > 0) return void (late = judgeIn(left))
      const reason = new AppError('timeout', `no data for ${PING_PATIENCE_MS / 1000} s`)
      muxer.abort(reason)
      connection.abort(reason)
    }
    let late = judgeIn(PING_PATIENCE_MS)
    try {
      return await ping(options)
    } finally {
      isOver = true
      clearTimeout(late)
    }
  }
}

/** The last measured round trip of a connection, in milliseconds, or null before the first. */
export const roundTripOf = (connection: object): number | null => {
  const muxer = 'muxer' in connection && typeof connection.muxer === 'object' ? connection.muxer : null
  return muxer !== null && isPinging(muxer) && muxer.rtt >= 0 ? muxer.rtt : null
}
