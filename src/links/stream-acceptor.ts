import type { Clock } from '../base/clock.ts'
import { AppError, asError } from '../base/errors.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshStream } from '../mesh/stream.ts'
import { toHex } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, MAX_LINK_FRAME, MAX_WAITING_STREAMS } from '../protocol/limits.ts'
import { streamHello, streamOpen } from '../protocol/link.ts'
import { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import type { Dispatcher } from './dispatcher.ts'
import { FrameStream } from './frame-stream.ts'
import type { LinkPort } from './link-port.ts'
import type { LinkTable } from './link-table.ts'
import { isAccepted } from './link.ts'

/** Streams of one connection, used or not, for an agent that the trust rules do not accept. */
export const MAX_STRANGER_STREAMS = 8

export interface StreamAcceptorComponents {
  readonly table: LinkTable
  readonly counters: DmCounters
  readonly clock: Clock
  readonly port: Pick<LinkPort, 'identity'>
  readonly dispatcher: Pick<Dispatcher, 'attach'>
}

/** Greets the streams a peer opens with a nonce, and waits until each is used. */
export class StreamAcceptor {
  readonly #parts: StreamAcceptorComponents
  readonly #waiting = new Map<MeshConnection, Set<FrameStream>>()

  constructor(components: StreamAcceptorComponents) {
    this.#parts = components
  }

  accept(connection: MeshConnection, stream: MeshStream): void {
    // Before it is used a stream brings one small frame, and behind it at once what it is for.
    const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    void this.#serve(connection, frames).catch((error: unknown) => {
      this.#parts.counters.add('streams_refused')
      frames.abort(asError(error))
    })
  }

  async #serve(connection: MeshConnection, frames: FrameStream): Promise<void> {
    const greeter = await this.#parts.table.linkOn(connection, AbortSignal.timeout(LINK_HANDSHAKE_MS))
    const nonce = await greeter.nonces.take()
    const waiting = this.#wait(connection, frames, isAccepted(greeter.link.decision) ? MAX_WAITING_STREAMS : MAX_STRANGER_STREAMS)
    const gone = (): void => frames.abort(greeter.gone.signal.reason as Error)
    greeter.gone.signal.addEventListener('abort', gone, { once: true })
    const done = (): void => {
      waiting.delete(frames)
      if (waiting.size === 0) this.#waiting.delete(connection)
      greeter.gone.signal.removeEventListener('abort', gone)
    }
    // Data may follow the first frame in the same turn, so the channel takes over without a pause.
    const onFrame = (first: Uint8Array): void => {
      done()
      try {
        this.#open(connection, frames, nonce, first)
      } catch (error) {
        this.#parts.counters.add('streams_refused')
        throw error
      }
    }
    const onEnd = (error: Error | null): void => {
      done()
      greeter.nonces.drop(nonce)
      if (error === null) void frames.close()
    }
    frames.send(streamHello.encode({ nonce }))
    frames.listen({ onFrame, onEnd }, MAX_LINK_FRAME)
  }

  #wait(connection: MeshConnection, frames: FrameStream, limit: number): Set<FrameStream> {
    const waiting = this.#waiting.get(connection) ?? new Set()
    this.#waiting.set(connection, waiting.add(frames))
    if (waiting.size > limit) {
      const [oldest] = waiting
      oldest?.abort(new AppError('rate_limited', 'too many unused streams'))
    }
    return waiting
  }

  #open(connection: MeshConnection, frames: FrameStream, nonce: Uint8Array, first: Uint8Array): void {
    const { table, counters, clock, dispatcher, port } = this.#parts
    const open = streamOpen.decode(first)
    const entry = table.byId(connection, toHex(open.link_id))
    if (entry === undefined) throw new AppError('malformed', 'a stream of no link')
    if (!isAccepted(entry.link.decision) && table.channelsOn(connection) >= MAX_STRANGER_STREAMS)
      throw new AppError('rate_limited', 'too many streams of an agent that is not accepted')
    counters.add('streams_accepted')
    const channel = new DmChannel(
      { frames, link: entry.link, counters, clock },
      { self: port.identity.agentId, opener: false, keys: entry.link.streamKeys(nonce, open.nonce), streamNonce: nonce },
    )
    table.hold(entry, channel)
    dispatcher.attach(channel)
    channel.listen()
  }
}
