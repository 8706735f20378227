import { AppError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import type { MeshConnection } from '../mesh/connection.ts'
import type { MeshNode } from '../mesh/node.ts'
import type { Offence } from '../mesh/penalties.ts'
import type { MeshStream } from '../mesh/stream.ts'
import { shortId } from '../protocol/ids.ts'
import { LINK_HANDSHAKE_MS, LINK_RENEW_MS } from '../protocol/limits.ts'
import type { DmChannel } from './channel.ts'
import type { DmCounters } from './counters.ts'
import type { Dispatcher } from './dispatcher.ts'
import { HandshakeBudget, type HandshakeNode } from './handshake-budget.ts'
import { asLinkError, giveUpUnanswered } from './link-handshake.ts'
import type { LinkEntry, LinkTable } from './link-table.ts'
import { isRejected } from './link.ts'

/** The side that did not open a link keeps it this much longer, so that its opener renews first. */
const LINK_RENEW_GRACE_MS = 60 * 60 * 1000

export interface LinkResponderComponents {
  readonly node: HandshakeNode & Pick<MeshNode, 'refuses' | 'isKnown' | 'penalise'>
  readonly table: LinkTable
  /** Gets the first channel of each link. */
  readonly dispatcher: Pick<Dispatcher, 'attach'>
  readonly counters: DmCounters
  readonly log: Logger
}

/** Answers the handshakes that peers begin. */
export class LinkResponder {
  readonly #parts: LinkResponderComponents
  readonly #budget: HandshakeBudget
  readonly #stopping: AbortSignal

  constructor(components: LinkResponderComponents, init: { stopping: AbortSignal }) {
    this.#parts = components
    this.#budget = new HandshakeBudget(components)
    this.#stopping = init.stopping
  }

  async respond(connection: MeshConnection, stream: MeshStream): Promise<void> {
    const { node, table, counters } = this.#parts
    // The gate did not see this connection if we have dialled it ourselves.
    const release = node.refuses(connection) ? null : this.#budget.take(connection)
    if (release === null) {
      counters.add('handshakes_refused')
      return stream.abort(new AppError('rate_limited', 'no handshake now'))
    }
    const done = table.expect(connection)
    try {
      const { entry, channel } = await this.#parts.table.make(connection, stream, (handshake) => handshake.respond(this.#stopping))
      this.#begin(entry, channel)
    } catch (error) {
      this.#onFailed(connection, asLinkError(error))
    } finally {
      done()
      release()
    }
  }

  #begin(entry: LinkEntry, channel: DmChannel): void {
    const { table, dispatcher } = this.#parts
    // The initiator renews the link after `LINK_RENEW_MS`; until then, and a little longer, the old one stays.
    table.after(entry, LINK_RENEW_MS + LINK_RENEW_GRACE_MS, () => table.retire(entry))
    dispatcher.attach(channel)
    channel.listen()
    if (isRejected(entry.link.decision)) this.#onProbation(entry, channel)
  }

  /** A peer we reject may ask once on the handshake's stream, so that it and the journal get the executor's answer. */
  #onProbation(entry: LinkEntry, channel: DmChannel): void {
    const { table, counters } = this.#parts
    const { link } = entry
    counters.add('links_rejected')
    const end = (): void => {
      if (!link.closed) table.closeConnection(link.connection, new AppError('peer_rejected', link.decision))
    }
    table.after(entry, LINK_HANDSHAKE_MS, end)
    const { onReleased } = channel
    channel.onReleased = () => {
      onReleased()
      // In a later turn, because libp2p may be aborting this very connection now, and throws when it is aborted again.
      setImmediate(end)
    }
  }

  #onFailed(connection: MeshConnection, reason: AppError): void {
    const { node, log } = this.#parts
    log.debug({ machine: shortId(connection.machineId), err: errorText(reason) }, 'a link handshake failed')
    const ours = connection.givenUp || this.#stopping.aborted
    const offence = offenceOf(reason, { known: node.isKnown(connection.machineId), ours })
    if (offence !== null) node.penalise(connection, offence)
    giveUpUnanswered(connection, reason)
  }
}

/**
 * The peer's offence in a handshake that it began and that failed; null where it may be nobody's. To begin a handshake and
 * leave it costs us signatures, and so is an offence, unless we have ended the connection ourselves (`ours`) or a named
 * machine (`known`) has lost it, or runs another release.
 */
const offenceOf = ({ code, data }: AppError, { known, ours }: { known: boolean; ours: boolean }): Offence | null => {
  if (data['offence'] === 'bad_signature') return 'bad_signature'
  if (code === 'malformed') return 'malformed'
  return data['offence'] !== 'handshake_failed' || ours || (known && (code === 'peer_unreachable' || code === 'upgrade'))
    ? null
    : 'handshake_failed'
}
