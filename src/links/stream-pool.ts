import type { Clock, Timer } from '../base/clock.ts'
import { AppError, asError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { Semaphore } from '../base/semaphore.ts'
import { randomBytes } from '../identity/hash.ts'
import { type AgentId, fromHex } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, MAX_LINK_FRAME, NONCE_BYTES, PEAK_MS } from '../protocol/limits/wire.ts'
import { DM_PROTOCOL, streamHello, streamOpen } from '../protocol/wire/link.ts'
import { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import { FrameStream } from './frame-stream.ts'
import type { OpenLink } from './link.ts'

/** The highest count noted within the last `PEAK_MS`, or a little longer: at most twice that. */
export class RecentPeak {
  readonly #clock: Pick<Clock, 'monotonic'>
  #since: number
  #before = 0
  #now = 0

  constructor(components: { clock: Pick<Clock, 'monotonic'> }) {
    this.#clock = components.clock
    this.#since = components.clock.monotonic()
  }

  record(count: number): void {
    this.#turn()
    this.#now = Math.max(this.#now, count)
  }

  get value(): number {
    this.#turn()
    return Math.max(this.#before, this.#now)
  }

  #turn(): void {
    const windows = Math.floor((this.#clock.monotonic() - this.#since) / PEAK_MS)
    if (windows === 0) return
    this.#since += windows * PEAK_MS
    this.#before = windows === 1 ? this.#now : 0
    this.#now = 0
  }
}

/** Streams kept negotiated and ready per connected peer, at least. */
export const SPARE_STREAMS = 2
/** At most: as many as were in use at once lately, so that the next burst finds them. */
const MAX_SPARE_STREAMS = 32
/** A spare stream that is taken is replaced when it is done with, or after this: longer than most runs, since its own packets are saved then. */
export const REFILL_MS = 1_000
/** Streams of one link that we have opened, or are opening, and not used yet: half of the peer's `MAX_WAITING_STREAMS`. */
const MAX_UNUSED_STREAMS = 48

export interface StreamPoolComponents {
  readonly link: OpenLink
  readonly counters: DmCounters
  readonly clock: Clock
  readonly log: Logger
}

/** A stream whose greeting has arrived: the first thing sent on it may be a signed request. */
interface Spare {
  readonly frames: FrameStream
  readonly nonce: Uint8Array
  /** Gives back its place in `#unused`. */
  readonly leave: () => void
}

/**
 * Keeps a few greeted streams of one link, so that a message to a linked peer costs one round trip. A stream that was
 * taken is replaced when its user is done, in one packet with its end, or after `REFILL_MS`. The size of a burst is
 * remembered (`RecentPeak`), so that the next burst of that size finds a stream for each.
 */
export class StreamPool {
  readonly #parts: StreamPoolComponents
  readonly #self: AgentId
  readonly #closed = new AbortController()
  /** The peer ends the oldest of too many unused streams (`MAX_WAITING_STREAMS`), so a burst waits here. */
  readonly #unused = new Semaphore({ limit: MAX_UNUSED_STREAMS })
  #spares: Spare[] = []
  readonly #peak: RecentPeak
  #opening = 0
  /** Streams taken, or waited for, whose users are not done. */
  #inUse = 0
  #refill: Timer | null = null
  #trim: Timer | null = null

  constructor(components: StreamPoolComponents, init: { self: AgentId }) {
    this.#parts = components
    this.#peak = new RecentPeak(components)
    this.#self = init.self
  }

  /** A channel on a spare stream, or on a new one when there is none. Throws what the opening throws. */
  async take(signal: AbortSignal): Promise<DmChannel> {
    this.#dropDead()
    this.#inUse += 1
    this.#peak.record(this.#inUse)
    const spare = this.#spares.shift() ?? (await this.#openNow(signal))
    this.#refill ??= this.#parts.clock.setTimeout(() => this.fill(), REFILL_MS, { unref: true })
    return this.#channel(spare)
  }

  /** Opens what is missing, without waiting; a failure shows when somebody needs a stream. */
  fill(): void {
    this.#refill?.cancel()
    this.#refill = null
    while (this.#mayFill()) {
      this.#opening += 1
      void this.#prepare()
    }
  }

  close(): void {
    this.#closed.abort()
    this.#refill?.cancel()
    this.#trim?.cancel()
    for (const spare of this.#spares) void spare.frames.close()
    this.#spares = []
  }

  /** How many spares there should be: streams in use are not counted again, since each is replaced when its user is done. */
  get #wanted(): number {
    return Math.max(SPARE_STREAMS, Math.min(this.#peak.value, MAX_SPARE_STREAMS) - this.#inUse)
  }

  #done(): void {
    this.#inUse -= 1
    this.fill()
  }

  #mayFill(): boolean {
    return (
      this.#spares.length + this.#opening < this.#wanted && this.#unused.free && this.#parts.link.usable && !this.#closed.signal.aborted
    )
  }

  #dropDead(): void {
    const [alive, dead] = [this.#spares.filter(isOpen), this.#spares.filter((spare) => !isOpen(spare))]
    for (const spare of dead) spare.leave()
    this.#spares = alive
  }

  async #prepare(): Promise<void> {
    try {
      const spare = await this.#open()
      if (this.#closed.signal.aborted) await spare.frames.close()
      else this.#keep(spare)
    } catch (error) {
      this.#parts.log.debug({ err: errorText(error) }, 'no spare stream')
    } finally {
      this.#opening -= 1
    }
  }

  #keep(spare: Spare): void {
    this.#spares.push(spare)
    if (this.#spares.length > SPARE_STREAMS) this.#trim ??= this.#parts.clock.setTimeout(() => this.#shrink(), PEAK_MS, { unref: true })
  }

  /** Closes spares beyond `#wanted`, once a burst has been forgotten. */
  #shrink(): void {
    this.#trim = null
    const kept = this.#spares.splice(0, this.#wanted)
    const [surplus] = [this.#spares, (this.#spares = [])]
    for (const spare of surplus) {
      spare.leave()
      void spare.frames.close()
    }
    for (const spare of kept) this.#keep(spare)
  }

  async #openNow(signal: AbortSignal): Promise<Spare> {
    try {
      return await this.#open(signal)
    } catch (error) {
      this.#inUse -= 1
      throw error
    }
  }

  async #open(signal?: AbortSignal): Promise<Spare> {
    const closed = this.#closed.signal
    const until = signal === undefined ? closed : AbortSignal.any([signal, closed])
    const leave = await this.#unused.acquire(until)
    try {
      return { ...(await this.#greeted(until)), leave }
    } catch (error) {
      leave()
      throw error
    }
  }

  async #greeted(signal: AbortSignal): Promise<Omit<Spare, 'leave'>> {
    const { clock, counters, link } = this.#parts
    const { connection } = link
    let frames: FrameStream | null = null
    let late = false
    // Not a signal of the runtime's: that would go off for every stream that was opened well, too.
    const giveUp = (): void => {
      late = true
      frames?.abort(new AppError('timeout', 'the peer did not greet a stream in time'))
    }
    const timer = clock.setTimeout(giveUp, LINK_HANDSHAKE_MS, { unref: true })
    try {
      const stream = await connection.openStream(DM_PROTOCOL, signal)
      frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
      const { nonce } = streamHello.decode(await frames.read(signal))
      counters.add('streams_opened')
      return { frames, nonce }
    } catch (error) {
      const reason = asError(error)
      frames?.abort(reason)
      // A peer greets as soon as it reads. A connection that is quiet for so long is taken for dead, so that the next attempt dials anew.
      if (late && !signal.aborted && connection.quiet) connection.abort(reason)
      throw error
    } finally {
      timer.cancel()
    }
  }

  #channel({ frames, nonce, leave }: Spare): DmChannel {
    const { link, counters, clock } = this.#parts
    const ours = randomBytes(NONCE_BYTES)
    const channel = new DmChannel(
      { frames, link, counters, clock },
      {
        self: this.#self,
        opener: true,
        keys: link.streamKeys(nonce, ours),
        streamNonce: nonce,
        preface: streamOpen.encode({ link_id: fromHex(link.id), nonce: ours }),
        onUsed: leave,
        onDone: () => this.#done(),
      },
    )
    channel.listen()
    return channel
  }
}

const isOpen = (spare: Spare): boolean => spare.frames.open
