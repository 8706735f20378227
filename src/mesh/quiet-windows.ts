import type { Stream } from '@libp2p/interface'

import { QUIET_WINDOW } from '../protocol/limits.ts'
import { wrapStreams } from './muxer-wrapper.ts'

/** What yamux's streams have beside their interface, as far as their windows go. */
interface Windowed {
  sendWindowUpdate(): void
  /** What the peer may still send, and what it may have on its way at most. */
  recvWindowCapacity: number
  recvWindow: number
  state: number
}

const isWindowed = (stream: object): stream is Windowed =>
  'sendWindowUpdate' in stream && 'recvWindowCapacity' in stream && 'recvWindow' in stream && 'state' in stream

const quiet = (stream: Stream): Stream => {
  if (!isWindowed(stream)) throw new TypeError('the streams of the muxer have no windows that could be kept quiet')
  const update = stream.sendWindowUpdate.bind(stream)
  stream.sendWindowUpdate = () => {
    if (stream.state === ESTABLISHED && stream.recvWindow - stream.recvWindowCapacity < QUIET_WINDOW) return
    update()
  }
  return stream
}

/** Of yamux's states: before it, the update is also what opens the stream or agrees to it. */
const ESTABLISHED = 3

/**
 * Wraps a muxer so that small messages are not each answered by a word about the window, which would be a
 * packet of its own: the peer is told when it has used enough of it to matter.
 */
export const quietWindows = wrapStreams(quiet)
