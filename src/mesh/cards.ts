import { unlessAborted } from '../base/abort.ts'
import { BoundedMap } from '../base/bounded-collections.ts'
import { AppError, asError, errorText } from '../base/errors.ts'
import { RateLimit } from '../base/rate-limit.ts'
import { Semaphore } from '../base/semaphore.ts'
import type { Startable } from '../base/startable.ts'
import { machineIdOfText } from '../identity/machine-key.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { perMinute } from '../protocol/limits/mesh.ts'
import { CARD_ANSWER_MS, MAX_CARD_ASK_BYTES, MAX_CARD_BYTES } from '../protocol/limits/wire.ts'
import { CARD_PROTOCOL, cardAsk } from '../protocol/wire/card.ts'
import { FrameDecoder, encodeFrame } from '../protocol/wire/framing.ts'
import type { MeshConnection } from './connection.ts'
import type { PresenceRecord } from './presences.ts'
import type { MeshServices } from './services.ts'
import type { MeshStream } from './stream.ts'

/** Cards of this many unlisted machines are requested as soon as they are heard of, so that a small mesh knows all its names. Further ones are requested on demand. */
export const EAGER_CARDS = 128
/** Cards of unknown machines that are stored for others, 6 KB each. If there are more, the neighbour that brought most loses its oldest. */
export const MAX_CARDS_HELD = 1_024
/** Requests of one kind at once. */
const MAX_ASKS = 8
/** Requests of one kind, including waiting ones. Others are repeated when the machine publishes its next presence. */
const MAX_ASKS_UNDERWAY = 256
/** Requests per minute that are answered to one machine, or to the unlisted machines of one host. A new machine sends one for each of `EAGER_CARDS`. */
export const CARD_ANSWERS_PER_MINUTE = 2 * EAGER_CARDS
/** Machines per minute that are dialled to verify a claim to one contact, for each neighbour that brings such claims. */
export const CLAIMS_DIALLED_PER_MINUTE = 6
/** Unlisted machines dialled per minute to verify claims. Above 50 % they are selected at random, so that no neighbour takes all. */
export const ALL_CLAIMS_DIALLED_PER_MINUTE = 60

/** All claimants share one rate limit. */
const CLAIMANTS = ''

/** Requests of one kind. Each kind has its own slots, so that unanswered requests of one kind do not delay the others. */
class Asks {
  readonly places = new Semaphore({ limit: MAX_ASKS })
  underway = 0
}

type CardsDeps = Pick<MeshServices, 'book' | 'clock' | 'knownAgents' | 'log' | 'node' | 'selfCard' | 'presences'> & {
  /** Called when a fetched card names an agent or machine that no earlier card named. */
  readonly onNewcomer: () => void
}

/**
 * Fetches cards on demand. When a presence arrives, it requests the card from that machine or from the neighbour that forwarded the
 * presence. It does so for contacts, and for unlisted machines while they are few. A card is valid only with the agent's signature, and for
 * the machine that names the agent itself.
 */
export class Cards implements Startable {
  readonly #deps: CardsDeps
  readonly #held = new BoundedMap<MachineId, Uint8Array>({ max: MAX_CARDS_HELD, isApart: (one) => this.#deps.node.isKnown(one) })
  readonly #underway = new Map<MachineId, Promise<unknown>>()
  /** Each kind has separate slots. `claimed` are machines that claim to have a contact. */
  readonly #asks = { known: new Asks(), claimed: new Asks(), unlisted: new Asks() }
  readonly #answers: RateLimit
  readonly #dialled: RateLimit
  readonly #allDialled: RateLimit
  readonly #stop = new AbortController()
  /** For `/diagnostics/mesh`. */
  readonly counts = { asked: 0, learnt: 0, refused: 0, answered: 0 }

  constructor(deps: CardsDeps) {
    this.#deps = deps
    this.#answers = new RateLimit(deps, perMinute(CARD_ANSWERS_PER_MINUTE))
    this.#dialled = new RateLimit(deps, perMinute(CLAIMS_DIALLED_PER_MINUTE))
    this.#allDialled = new RateLimit(deps, perMinute(ALL_CLAIMS_DIALLED_PER_MINUTE))
  }

  /** Registers the protocol. Call it before the node's start. */
  start(): void {
    this.#deps.node.handle(CARD_PROTOCOL, (connection, stream) => void this.#answer(connection, stream))
  }

  stop(): void {
    this.#stop.abort(new AppError('shutting_down'))
  }

  heard(heard: PresenceRecord): void {
    const { knownAgents, node, book } = this.#deps
    if (knownAgents.renew(heard) || this.#underway.has(heard.machine_id)) return
    const kind = node.isKnown(heard.machine_id) ? 'known' : book.mayBe(heard.agent_id, heard.machine_id) ? 'claimed' : 'unlisted'
    if (kind === 'unlisted' && knownAgents.list().length >= EAGER_CARDS) return
    const asks = this.#asks[kind]
    if (asks.underway >= MAX_ASKS_UNDERWAY) return
    asks.underway += 1
    const asking = this.#ask(heard, asks).finally(() => {
      asks.underway -= 1
      this.#underway.delete(heard.machine_id)
    })
    this.#underway.set(heard.machine_id, asking)
  }

  async #ask(heard: PresenceRecord, asks: Asks): Promise<void> {
    const { node, log } = this.#deps
    const { machine_id, neighbour, addresses } = heard
    try {
      await asks.places.use(this.#stop.signal, async () => {
        const nearest = node.connectionsTo(machine_id).at(-1) ?? node.connectionsTo(machineIdOfText(neighbour) ?? '').at(-1)
        // The neighbour may withhold the card on purpose, so its failure is not final.
        if (nearest !== undefined && (await this.#askOf(nearest, heard).catch(() => false))) return
        if (asks === this.#asks.unlisted || nearest?.machineId === machine_id || !this.#mayDial(heard, asks)) return
        await this.#askOf(await node.dial(machine_id, addresses, this.#stop.signal, { background: true }), heard)
      })
    } catch (error) {
      if (!this.#stop.signal.aborted) log.debug({ machine: shortId(machine_id), err: errorText(error) }, 'its card was not received')
    }
  }

  /** Anyone can claim a contact's ID, so each neighbour that brings such claims has its own rate limit. */
  #mayDial({ agent_id, neighbour }: PresenceRecord, asks: Asks): boolean {
    return this.#dialled.allows(`${agent_id} ${neighbour}`) && (asks === this.#asks.known || this.#allDialled.allowsByChance(CLAIMANTS))
  }

  /** Returns false if this machine does not have the card. */
  async #askOf(connection: MeshConnection, heard: PresenceRecord): Promise<boolean> {
    this.counts.asked += 1
    const limit = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(CARD_ANSWER_MS)])
    const stream = await connection.openStream(CARD_PROTOCOL, limit)
    const answer = oneFrame(stream, MAX_CARD_BYTES)
    let card: Uint8Array
    try {
      stream.send(encodeFrame(cardAsk.encode({ version: 1, machine_id: heard.machine_id })))
      card = await unlessAborted(answer, limit)
      void stream.close()
    } catch (error) {
      stream.abort(asError(error))
      throw error
    }
    return card.length > 0 && this.#learn(Uint8Array.from(card), heard)
  }

  #learn(card: Uint8Array, heard: PresenceRecord): boolean {
    // The presence may have changed since the request.
    const learnt = this.#deps.knownAgents.learn(card, this.#deps.presences.of(heard.machine_id) ?? heard)
    this.counts[learnt === 'refused' ? 'refused' : 'learnt'] += 1
    if (learnt === 'refused') return false
    this.#held.set(heard.machine_id, card, heard.neighbour)
    if (learnt === 'newcomer') this.#deps.onNewcomer()
    return true
  }

  /** Answers from own data only. It waits for a request that is already under way. */
  async #answer(connection: MeshConnection, stream: MeshStream): Promise<void> {
    const limit = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(CARD_ANSWER_MS)])
    const { node, selfCard } = this.#deps
    try {
      if (!this.#answers.allows(node.isKnown(connection.machineId) ? connection.machineId : connection.host))
        throw new AppError('rate_limited', 'too many card requests')
      const { machine_id } = cardAsk.decode(await unlessAborted(oneFrame(stream, MAX_CARD_ASK_BYTES), limit))
      if (machine_id !== node.machineId) await unlessAborted(Promise.resolve(this.#underway.get(machine_id)), limit)
      const card = machine_id === node.machineId ? (await selfCard.current()).encoded : this.#heldOf(machine_id)
      stream.send(encodeFrame(card))
      this.counts.answered += 1
      await stream.close()
    } catch (error) {
      stream.abort(asError(error))
    }
  }

  #heldOf(machineId: MachineId): Uint8Array {
    // Cards of machines without a valid presence are not passed on.
    return (this.#deps.presences.of(machineId) === null ? undefined : this.#held.get(machineId)) ?? new Uint8Array()
  }
}

/** Resolves with the first frame on a stream. Call it in the turn in which the stream was received. */
const oneFrame = async (stream: MeshStream, maxFrame: number): Promise<Uint8Array> => {
  const { promise, resolve, reject } = Promise.withResolvers<Uint8Array>()
  const frames = new FrameDecoder(maxFrame)
  stream.onData = (chunk) => {
    try {
      for (const frame of frames.push(chunk)) return resolve(frame)
    } catch (error) {
      reject(error)
    }
  }
  stream.onEnd = (error) => reject(error ?? new AppError('peer_rejected', 'the peer ended the stream'))
  // The stream may end before its frame is awaited.
  promise.catch(() => undefined)
  return promise
}
