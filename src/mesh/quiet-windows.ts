import type { Stream, StreamMuxer } from '@libp2p/interface'

import { QUIET_WINDOW } from '../protocol/limits.ts'
import { wrapMuxers } from './muxer-wrapper.ts'

/** What yamux's streams have beside their interface, as far as their windows go. */
interface Windowed {
  sendWindowUpdate(): void
  /** What the peer may still send, and what it may have on its way at most. */
  recvWindowCapacity: number
  recvWindow: number
  state: number
}
type Making = StreamMuxer & { _newStream(...args: readonly unknown[]): Stream }

const isMaking = (muxer: StreamMuxer): muxer is Making => '_newStream' in muxer && typeof muxer._newStream === 'function'
const isWindowed = (stream: object): stream is Windowed =>
  'sendWindowUpdate' in stream && 'recvWindowCapacity' in stream && 'recvWindow' in stream && 'state' in stream

const quiet = (muxer: StreamMuxer): StreamMuxer => {
  if (!isMaking(muxer)) throw new TypeError('the muxer has no way to make streams that could be quieted')
  const make = muxer._newStream.bind(muxer)
  muxer._newStream = (...args) => {
    const stream = make(...args)
    if (!isWindowed(stream)) throw new TypeError('the streams of the muxer have no windows that could be kept quiet')
    const update = stream.sendWindowUpdate.bind(stream)
    stream.sendWindowUpdate = () => {
      if (stream.state === ESTABLISHED && stream.recvWindow - stream.recvWindowCapacity < QUIET_WINDOW) return
      update()
    }
    return stream
  }
  return muxer
}

/** Of yamux's states: before it, the update is also what opens the stream or agrees to it. */
const ESTABLISHED = 3

/**
 * Wraps a muxer so that small messages are not each answered by a word about the window, which would be a
 * packet of its own: the peer is told when it has used enough of it to matter.
 */
export const quietWindows = wrapMuxers(quiet)
