import { AppError, errorText } from '../base/errors.ts'
import type { Clock } from '../base/clock.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshStream } from '../mesh/stream.ts'
import { toHex, type AgentId } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, MAX_LINK_FRAME, MAX_SEALED_FRAME, MAX_WAITING_STREAMS } from '../protocol/limits.ts'
import { streamHello, streamOpen } from '../protocol/link.ts'
import { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import { FrameStream } from './frame-stream.ts'
import type { LinkTable } from './link-table.ts'

export interface StreamAcceptorComponents {
  readonly table: LinkTable
  readonly counters: DmCounters
  readonly clock: Clock
}

export interface StreamAcceptorInit {
  readonly self: AgentId
  onChannel(channel: DmChannel): void
}

/** Greets the streams a peer opens with a nonce, and waits until each is used. */
export class StreamAcceptor {
  readonly #table: LinkTable
  readonly #counters: DmCounters
  readonly #clock: Clock
  readonly #init: StreamAcceptorInit
  readonly #waiting = new Map<MeshConnection, Set<FrameStream>>()

  constructor(components: StreamAcceptorComponents, init: StreamAcceptorInit) {
    this.#table = components.table
    this.#counters = components.counters
    this.#clock = components.clock
    this.#init = init
  }

  accept(connection: MeshConnection, stream: MeshStream): void {
    // Before it is used a stream brings one small frame, and behind it at once what it is for.
    const frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
    void this.#serve(connection, frames).catch((error: unknown) => {
      this.#counters.add('streams_refused')
      frames.abort(error instanceof Error ? error : new Error(errorText(error)))
    })
  }

  async #serve(connection: MeshConnection, frames: FrameStream): Promise<void> {
    const greeter = await this.#table.linkOn(connection, AbortSignal.timeout(LINK_HANDSHAKE_MS))
    const nonce = await greeter.nonces.take()
    const gone = greeter.gone.signal
    try {
      frames.allowEarly(MAX_LINK_FRAME + MAX_SEALED_FRAME)
      frames.send(streamHello.encode({ nonce }))
      const first = await this.#firstUse(connection, frames, gone)
      if (first === null) return greeter.nonces.drop(nonce)
      this.#open(connection, frames, nonce, first)
    } catch (error) {
      greeter.nonces.drop(nonce)
      throw error
    }
  }

  /** The frame that says what the stream is used for; null when the peer closed it unused, as it may. */
  async #firstUse(connection: MeshConnection, frames: FrameStream, gone: AbortSignal): Promise<Uint8Array | null> {
    const waiting = this.#waiting.get(connection) ?? new Set()
    this.#waiting.set(connection, waiting.add(frames))
    if (waiting.size > MAX_WAITING_STREAMS) {
      const [oldest] = waiting
      oldest?.abort(new AppError('rate_limited', 'too many unused streams'))
    }
    try {
      return await frames.readOrEnd(gone)
    } finally {
      waiting.delete(frames)
      if (waiting.size === 0) this.#waiting.delete(connection)
    }
  }

  #open(connection: MeshConnection, frames: FrameStream, nonce: Uint8Array, first: Uint8Array): void {
    const open = streamOpen.decode(first)
    const entry = this.#table.byId(connection, toHex(open.link_id))
    if (entry === undefined) throw new AppError('malformed', 'a stream of no link')
    this.#counters.add('streams_accepted')
    const channel = new DmChannel(
      { frames, link: entry.link, counters: this.#counters, clock: this.#clock },
      { self: this.#init.self, opener: false, keys: entry.link.streamKeys(nonce, open.nonce), streamNonce: nonce },
    )
    this.#table.hold(entry, channel)
    this.#init.onChannel(channel)
    channel.listen()
  }
}
