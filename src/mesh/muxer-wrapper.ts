import type { MessageStream, Stream, StreamMuxer, StreamMuxerFactory } from '@libp2p/interface'

/** What libp2p is given as a muxer. */
type MakeMuxer<Components> = (components: Components) => StreamMuxerFactory

/** Every muxer that it makes goes through `wrap`, once, before libp2p has it. */
export const wrapMuxers =
  (wrap: (muxer: StreamMuxer, connection: MessageStream) => StreamMuxer) =>
  <Components>(make: MakeMuxer<Components>): MakeMuxer<Components> =>
  (components) => {
    const factory = make(components)
    return {
      protocol: factory.protocol,
      createStreamMuxer: (connection) => wrap(factory.createStreamMuxer(connection), connection),
    }
  }

/** What yamux's muxers have beside their interface. */
type Making = StreamMuxer & { _newStream(...args: readonly unknown[]): Stream }

const isMaking = (muxer: StreamMuxer): muxer is Making => '_newStream' in muxer && typeof muxer._newStream === 'function'

/** Every stream that one of its muxers makes, for either side, goes through `wrap` before anybody hears of it. */
export const wrapStreams = (wrap: (stream: Stream) => Stream): ReturnType<typeof wrapMuxers> =>
  wrapMuxers((muxer) => {
    if (!isMaking(muxer)) throw new TypeError('the muxer has no way to make streams that could be wrapped')
    const make = muxer._newStream.bind(muxer)
    muxer._newStream = (...args) => wrap(make(...args))
    return muxer
  })
