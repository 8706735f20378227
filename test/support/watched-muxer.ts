import type { StreamMuxer } from '@libp2p/interface'

import { wrapMuxers } from '../../src/mesh/muxer-wrapper.ts'

/** What Noise hands on: one message in one or more pieces. */
export type NoiseMessage = Iterable<Uint8Array> & { readonly byteLength: number; subarray(): Uint8Array }

/** A muxer of which each message is seen before it gets it. */
export const watchedMuxer = (see: (message: NoiseMessage) => void): ReturnType<typeof wrapMuxers> =>
  wrapMuxers((muxer) => {
    const receiving = muxer as StreamMuxer & { onData(message: NoiseMessage): void }
    const onData = receiving.onData.bind(receiving)
    receiving.onData = (message) => {
      see(message)
      onData(message)
    }
    return receiving
  })
