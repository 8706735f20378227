import type { MessageStream, StreamMuxer, StreamMuxerFactory } from '@libp2p/interface'

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
