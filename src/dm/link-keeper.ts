import type { Clock } from '../base/clock.ts'
import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import { REVOCATIONS_PREFIX, revocationList } from '../protocol/dm.ts'
import { shortId, type AgentId } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, LINK_RENEW_GRACE_MS, LINK_RENEW_MS, MAX_FRAME_DATA, MAX_HANDSHAKES } from '../protocol/limits.ts'
import type { TrustDecision } from '../protocol/reasons.ts'
import { newRequestId } from './request-id.ts'
import { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import type { FrameStream } from './frame-stream.ts'
import { isRejected, OpenLink } from './link.ts'
import type { Handshake } from './link-handshake.ts'
import type { LinkPort } from './link-port.ts'
import type { LinkTable, TableLink } from './link-table.ts'
import { NonceSupply } from './nonce-supply.ts'
import { StreamPool } from './stream-pool.ts'

export interface LinkKeeperComponents {
  readonly port: LinkPort
  readonly table: LinkTable
  readonly counters: DmCounters
  readonly clock: Clock
  readonly log: Logger
}

export interface LinkKeeperInit {
  readonly self: AgentId
  onChannel(channel: DmChannel): void
  /** A link that we had opened is due for a new one. */
  renew(agentId: AgentId): void
}

/** What happens to a link from its handshake to its end: its first channel, what the executor says of it, its renewal. */
export class LinkKeeper {
  readonly #parts: LinkKeeperComponents
  readonly #init: LinkKeeperInit
  /** The executor may speak of a link before we have seen its answer that made it. */
  readonly #early = new Map<number, ((entry: TableLink) => void)[]>()
  #handshakes = 0

  constructor(components: LinkKeeperComponents, init: LinkKeeperInit) {
    this.#parts = components
    this.#init = init
  }

  /** While a handshake runs, pushes about numbers not yet known are kept. The answer ends it. */
  expectPushes(): () => void {
    this.#handshakes += 1
    return () => {
      this.#handshakes -= 1
      if (this.#handshakes === 0) this.#early.clear()
    }
  }

  /** Makes the link of a finished handshake, and its first channel of the handshake's own stream. */
  open(connection: MeshConnection, frames: FrameStream, { facts, responderNonce, initiatorNonce }: Handshake): TableLink {
    const { port, table, counters, clock } = this.#parts
    if (!connection.open) {
      port.linkClosed(facts.number)
      throw new AppError('peer_unreachable', 'the connection was lost')
    }
    const link = new OpenLink({ connection }, { ...facts, openedAtMs: clock.now() })
    const entry: TableLink = {
      link,
      pool: new StreamPool({ ...this.#parts, link }, { self: this.#init.self }),
      nonces: new NonceSupply({ port }, { link: link.number }),
      gone: new AbortController(),
      channels: new Set(),
      first: null,
    }
    table.add(entry)
    const channel = new DmChannel(
      { frames, link, counters, clock },
      {
        self: this.#init.self,
        opener: facts.initiator,
        keys: link.streamKeys(responderNonce, initiatorNonce),
        streamNonce: responderNonce,
      },
    )
    table.hold(entry, channel)
    this.#begin(entry, channel)
    return entry
  }

  /** A channel on a stream of this link's pool. */
  async openOn(entry: TableLink, signal: AbortSignal): Promise<DmChannel> {
    const channel = await entry.pool.take(signal)
    this.#parts.table.hold(entry, channel)
    return channel
  }

  onDecision(number: number, decision: TrustDecision): void {
    this.#about(number, (entry) => {
      entry.link.decision = decision
      if (isRejected(decision)) this.#reject(entry, new AppError('peer_rejected', `the link's standing is now ${decision}`))
    })
  }

  onRevocations(number: number, items: readonly Uint8Array[]): void {
    this.#about(number, (entry) => {
      if (!entry.link.usable || items.length === 0) return
      this.#sendRevocations(entry, items).catch((error: unknown) =>
        this.#parts.log.debug({ agent: shortId(entry.link.agentId), err: errorText(error) }, 'revocations not handed over'),
      )
    })
  }

  #begin(entry: TableLink, channel: DmChannel): void {
    const { link } = entry
    this.#renewLater(entry)
    if (link.initiator) entry.first = channel
    else this.#init.onChannel(channel)
    channel.listen()
    if (isRejected(link.decision)) this.#onProbation(entry, channel)
    else if (link.initiator) entry.pool.fill()
    const early = this.#early.get(link.number) ?? []
    this.#early.delete(link.number)
    for (const tell of early) tell(entry)
  }

  /** A peer we reject may ask once on the handshake's stream, so that it and the journal get the executor's answer. */
  #onProbation(entry: TableLink, channel: DmChannel): void {
    this.#parts.counters.add('links_rejected')
    const reason = new AppError('peer_rejected', entry.link.decision)
    const timer = this.#parts.clock.setTimeout(() => this.#end(entry, reason), LINK_HANDSHAKE_MS, { unref: true })
    entry.gone.signal.addEventListener('abort', () => timer.cancel(), { once: true })
    const { onReleased } = channel
    channel.onReleased = () => {
      onReleased()
      this.#end(entry, reason)
    }
  }

  #reject(entry: TableLink, reason: AppError): void {
    this.#parts.counters.add('links_rejected')
    this.#end(entry, reason)
  }

  #end(entry: TableLink, reason: AppError): void {
    if (entry.link.closed) return
    this.#parts.table.closeConnection(entry.link.connection, reason)
    entry.link.connection.abort(reason)
  }

  /** Its opener makes a new link when this one is old; the other side waits a little longer before it lets go. */
  #renewLater(entry: TableLink): void {
    const { link } = entry
    const timer = this.#parts.clock.setTimeout(
      () => {
        this.#parts.table.retire(entry)
        if (link.initiator) this.#init.renew(link.agentId)
      },
      LINK_RENEW_MS + (link.initiator ? 0 : LINK_RENEW_GRACE_MS),
      { unref: true },
    )
    entry.gone.signal.addEventListener('abort', () => timer.cancel(), { once: true })
  }

  #about(number: number, tell: (entry: TableLink) => void): void {
    const entry = this.#parts.table.byNumber(number)
    if (entry !== undefined) tell(entry)
    else if (this.#handshakes > 0) this.#keepEarly(number, tell)
  }

  /** A stranger can see to it that a handshake always runs: what is kept for links that never come is bounded. */
  #keepEarly(number: number, tell: (entry: TableLink) => void): void {
    this.#early.set(number, [...(this.#early.get(number) ?? []), tell])
    const [oldest] = this.#early.keys()
    if (this.#early.size > MAX_HANDSHAKES && oldest !== undefined) this.#early.delete(oldest)
  }

  async #sendRevocations(entry: TableLink, items: readonly Uint8Array[]): Promise<void> {
    const channel = await this.openOn(entry, AbortSignal.timeout(LINK_HANDSHAKE_MS))
    for (const batch of batches(items)) {
      if (!channel.send(newRequestId(), Buffer.concat([REVOCATIONS_PREFIX, revocationList.encode({ items: batch })])))
        await channel.drained()
    }
    await channel.close()
  }
}

/** Room for the list's own encoding. */
const BATCH_BYTES = MAX_FRAME_DATA - 1024

/** Cuts a list so that each part fits a frame. */
const batches = (items: readonly Uint8Array[]): Uint8Array[][] => {
  const parts: Uint8Array[][] = []
  let room = 0
  for (const item of items) {
    if (item.length + 8 > room) {
      parts.push([])
      room = BATCH_BYTES
    }
    parts.at(-1)!.push(item)
    room -= item.length + 8
  }
  return parts
}
