import type { Stream } from '@libp2p/interface'

import { AppError } from '../base/errors.ts'
import { MAX_NEGOTIATION_ANSWERS } from '../protocol/meter-limits.ts'
import { wrapStreams } from './muxer-wrapper.ts'

/** Until a protocol is agreed on, all that we send on a stream of the peer are answers to what it proposes. */
const brief = (stream: Stream): Stream => {
  if (stream.direction !== 'inbound') return stream
  const send = stream.send.bind(stream)
  let answers = 0
  stream.send = (data) => {
    if (stream.protocol !== '') stream.send = send
    else if (++answers > MAX_NEGOTIATION_ANSWERS) stream.abort(new AppError('rate_limited', 'too many proposals'))
    return send(data)
  }
  return stream
}

/** Wraps a muxer so that who opens a stream is answered few proposals: multistream-select would answer any number, two bytes each. */
export const briefNegotiation = wrapStreams(brief)
