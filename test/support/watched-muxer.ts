import type { MessageStream, StreamMuxer, StreamMuxerFactory } from '@libp2p/interface'

/** One decrypted message of Noise, in one or more pieces. */
export type NoiseMessage = Iterable<Uint8Array> & { readonly byteLength: number; subarray(): Uint8Array }

type MakeMuxer<Components> = (components: Components) => StreamMuxerFactory

/** A muxer that calls `see` with each message before it processes the message. */
export const watchedMuxer =
  (see: (message: NoiseMessage) => void) =>
  <Components>(make: MakeMuxer<Components>): MakeMuxer<Components> =>
  (components) => {
    const factory = make(components)
    const createStreamMuxer = (connection: MessageStream): StreamMuxer => {
      const muxer = factory.createStreamMuxer(connection) as StreamMuxer & { onData(message: NoiseMessage): void }
      const onData = muxer.onData.bind(muxer)
      muxer.onData = (message) => {
        see(message)
        onData(message)
      }
      return muxer
    }
    return { protocol: factory.protocol, createStreamMuxer }
  }
