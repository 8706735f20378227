import type { AbortOptions, MessageStream, StreamMuxer } from '@libp2p/interface'
import { AppError } from '../../base/errors.ts'

/** Of a connection that is silent for so long while a ping waits for its answer, that is the end. */
export const PING_PATIENCE_MS = 15_000
/** Where something has come for so little time no ping is sent … */
export const HEARD_MS = 10_000
/** … as long as the round trip that is known was measured no longer ago than this. */
export const ROUND_TRIP_MS = 60_000

/** What yamux's muxers have beside their interface. `rtt`: the last round trip in milliseconds; below 0 before the first. */
interface Pinging {
  ping(options?: AbortOptions): Promise<number>
  onData(data: unknown): void
  rtt: number
}

const isPinging = (muxer: object): muxer is Pinging =>
  'ping' in muxer && 'onData' in muxer && 'rtt' in muxer && typeof muxer.rtt === 'number'

/**
 * Ends a connection whose peer does not answer the muxer's own ping, which every connection sends by a clock of its own. libp2p's
 * monitor asks on all of them in the same moment, by a stream each: of a thousand that is more than a second's work at once. Whatever comes
 * is a sign of life, so that who is asked for runs all the time, and who is pinged, sends none: it is dead 35 s after its last word at the latest.
 */
export const endUnanswered = (muxer: StreamMuxer, connection: Pick<MessageStream, 'abort'>): void => {
  if (!isPinging(muxer)) throw new TypeError('the muxer has not the members that we rely on')
  const [ping, onData] = [muxer.ping.bind(muxer), muxer.onData.bind(muxer)]
  const last = { heard: Number.NEGATIVE_INFINITY, ping: Number.NEGATIVE_INFINITY }
  muxer.onData = (data) => {
    last.heard = performance.now()
    onData(data)
  }
  muxer.ping = async (options) => {
    const now = performance.now()
    if (now - last.heard < HEARD_MS && now - last.ping < ROUND_TRIP_MS) return muxer.rtt
    // The first is sent while the connection is being made, and is as slow as that: the next one follows it soon.
    if (muxer.rtt >= 0) last.ping = now
    let isOver = false
    // Where this process was held up, what has come meanwhile is read before silence is judged.
    const judgeIn = (ms: number): NodeJS.Timeout => setTimeout(() => setImmediate(judge), ms).unref()
    const judge = (): void => {
      if (isOver) return
      // Behind what a slow path brings the answer may wait for longer than that: silence begins with the last word.
      const left = last.heard > now ? last.heard + PING_PATIENCE_MS - performance.now() : 0
      if (left > 0) return void (late = judgeIn(left))
      const reason = new AppError('timeout', `no sign of life for ${PING_PATIENCE_MS / 1000} s`)
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

/** The last measured round trip of a connection, in milliseconds; null before the first. */
export const roundTripOf = (connection: object): number | null => {
  const muxer = 'muxer' in connection && typeof connection.muxer === 'object' ? connection.muxer : null
  return muxer !== null && isPinging(muxer) && muxer.rtt >= 0 ? muxer.rtt : null
}
