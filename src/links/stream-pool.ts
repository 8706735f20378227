import type { Clock, Timer } from '../base/clock.ts'
import { AppError, asError, errorText } from '../base/errors.ts'
import { Semaphore } from '../base/semaphore.ts'
import { randomBytes } from '../identity/hash.ts'
import { type AgentId, fromHex } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, MAX_LINK_FRAME, NONCE_BYTES, PEAK_MS } from '../protocol/limits/wire.ts'
import { DM_PROTOCOL, streamHello, streamOpen } from '../protocol/wire/link.ts'
import { DmChannel } from './channel.ts'
import { FrameStream } from './frame-stream.ts'
import type { OpenLink, LinkExecutor } from './link.ts'
import type { LinkServices } from './services.ts'

/** The highest count recorded within the last `PEAK_MS`. A value may stay for up to twice that time. */
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

/** Number of stream nonces requested from the executor at a time. */
export const NONCE_BATCH = 8

/** Stream nonces of one link, requested from the executor in advance, so that a stream need not wait for one. */
export class NonceSupply {
  readonly #executor: LinkExecutor
  readonly #link: number
  #stock: Uint8Array[] = []
  #refill: Promise<void> | null = null
  #closed = false

  constructor(components: { executor: LinkExecutor }, init: { link: number }) {
    this.#executor = components.executor
    this.#link = init.link
  }

  /** Takes one nonce. Throws the executor's error if the peer already holds `MAX_NONCES_PER_PEER`. */
  async take(): Promise<Uint8Array> {
    while (!this.#closed) {
      const nonce = this.#stock.shift()
      if (this.#stock.length < NONCE_BATCH / 2) this.#refillNow()
      if (nonce !== undefined) return nonce
      await this.#refill
    }
    throw new AppError('peer_unreachable', 'the link is closed')
  }

  /** Returns an unused nonce after its stream has ended. */
  drop(nonce: Uint8Array): void {
    if (!this.#closed) this.#executor.dropNonces(this.#link, [nonce])
  }

  /** Ends the supply with its link, which makes all its nonces void. */
  close(): void {
    this.#closed = true
    this.#stock = []
  }

  #refillNow(): void {
    if (this.#refill !== null) return
    this.#refill = this.#mint()
    // A failure to mint in advance is reported to the next `take`, which awaits it.
    this.#refill.catch(() => undefined)
  }

  async #mint(): Promise<void> {
    try {
      this.#stock.push(...(await this.#executor.mintNonces(this.#link, NONCE_BATCH)))
    } finally {
      this.#refill = null
    }
  }
}

/** Minimum number of negotiated, unused streams per connected peer. */
export const SPARE_STREAMS = 2
/** Maximum number of unused streams. As many as were recently in use at once are kept for the next burst. */
const MAX_SPARE_STREAMS = 32
/** A stream that was taken is replaced when its user is done, or after this time. It exceeds the duration of most runs, so that replacing the stream costs no extra packets. */
export const REFILL_MS = 1_000
/** Streams of one link that are opening or unused. The peer's `MAX_WAITING_STREAMS` allows twice as many. */
const MAX_UNUSED_STREAMS = 48

type StreamPoolDeps = Pick<LinkServices, 'clock' | 'counters' | 'log'> & { readonly link: OpenLink }

/** A stream whose greeting has arrived. The first frame sent on it may carry a signed request. */
interface Spare {
  readonly frames: FrameStream
  readonly nonce: Uint8Array
  /** Releases its slot of `#unused`. */
  readonly leave: () => void
}

/**
 * Keeps a few greeted streams per link ready, so that a message to a linked peer costs one round trip. A stream that was taken is replaced
 * when its user is done, in one packet with its end, or after `REFILL_MS`. `RecentPeak` remembers the size of a burst, so that the next
 * burst of that size finds enough streams.
 */
export class StreamPool {
  readonly #deps: StreamPoolDeps
  readonly #self: AgentId
  readonly #closed = new AbortController()
  /** The peer ends the oldest unused stream above `MAX_WAITING_STREAMS`, so streams of a burst wait here. */
  readonly #unused = new Semaphore({ limit: MAX_UNUSED_STREAMS })
  #spares: Spare[] = []
  readonly #peak: RecentPeak
  #opening = 0
  /** Streams that are taken or requested, and whose users are not done. */
  #inUse = 0
  #refill: Timer | null = null
  #trim: Timer | null = null

  constructor(deps: StreamPoolDeps, init: { self: AgentId }) {
    this.#deps = deps
    this.#peak = new RecentPeak(deps)
    this.#self = init.self
  }

  /** Opens a channel on an unused stream, or on a new one. Throws the error of opening. */
  async take(signal: AbortSignal): Promise<DmChannel> {
    this.#dropDead()
    this.#inUse += 1
    this.#peak.record(this.#inUse)
    const spare = this.#spares.shift() ?? (await this.#openNow(signal))
    this.#refill ??= this.#deps.clock.setTimeout(() => this.fill(), REFILL_MS, { unref: true })
    return this.#channel(spare)
  }

  /** Opens missing streams in the background. A failure shows when a stream is taken. */
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

  /** Number of unused streams to keep. Streams in use do not count again, because each is replaced when its user is done. */
  get #wanted(): number {
    return Math.max(SPARE_STREAMS, Math.min(this.#peak.value, MAX_SPARE_STREAMS) - this.#inUse)
  }

  #done(): void {
    this.#inUse -= 1
    this.fill()
  }

  #mayFill(): boolean {
    return this.#spares.length + this.#opening < this.#wanted && this.#unused.free && this.#deps.link.usable && !this.#closed.signal.aborted
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
      this.#deps.log.debug({ err: errorText(error) }, 'no spare stream')
    } finally {
      this.#opening -= 1
    }
  }

  #keep(spare: Spare): void {
    this.#spares.push(spare)
    if (this.#spares.length > SPARE_STREAMS) this.#trim ??= this.#deps.clock.setTimeout(() => this.#shrink(), PEAK_MS, { unref: true })
  }

  /** Closes streams beyond `#wanted` after the peak has passed. */
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
    const { clock, counters, link } = this.#deps
    const { connection } = link
    let frames: FrameStream | null = null
    let late = false
    // A timer, because `AbortSignal.timeout` would also fire for each stream that opened in time.
    const abortLate = (): void => {
      late = true
      frames?.abort(new AppError('timeout', 'the peer did not greet a stream in time'))
    }
    const timer = clock.setTimeout(abortLate, LINK_HANDSHAKE_MS, { unref: true })
    try {
      const stream = await connection.openStream(DM_PROTOCOL, signal)
      frames = new FrameStream({ stream }, { maxFrame: MAX_LINK_FRAME, maxEarly: MAX_LINK_FRAME })
      const { nonce } = streamHello.decode(await frames.read(signal))
      counters.add('streams_opened')
      return { frames, nonce }
    } catch (error) {
      const reason = asError(error)
      frames?.abort(reason)
      // A live peer greets at once. A connection that stays quiet for this long counts as dead, so that the next attempt dials again.
      if (late && !signal.aborted && connection.quiet) connection.abort(reason)
      throw error
    } finally {
      timer.cancel()
    }
  }

  #channel({ frames, nonce, leave }: Spare): DmChannel {
    const { link, counters, clock } = this.#deps
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
