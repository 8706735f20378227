import { unlessAborted } from '../base/abort.ts'
import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock } from '../base/clock.ts'
import { AppError, asError, errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { RateLimit } from '../base/rate-limit.ts'
import { Semaphore } from '../base/semaphore.ts'
import type { Startable } from '../base/startable.ts'
import { machineIdOfText } from '../identity/machine-key.ts'
import { type MachineId, shortId } from '../protocol/ids.ts'
import { perMinute } from '../protocol/limits/mesh.ts'
import { CARD_ANSWER_MS, MAX_CARD_ASK_BYTES, MAX_CARD_BYTES } from '../protocol/limits/wire.ts'
import { CARD_PROTOCOL, cardAsk } from '../protocol/wire/card.ts'
import { FrameDecoder, encodeFrame } from '../protocol/wire/framing.ts'
import type { AddressBook } from './address-book.ts'
import type { MeshConnection } from './connection.ts'
import type { KnownAgents } from './known-agents.ts'
import type { MeshNode } from './node.ts'
import type { SelfCard } from './self-card.ts'
import type { PresenceRecord, Presences } from './presences.ts'
import type { MeshStream } from './stream.ts'

/** Strangers whose cards are asked for as soon as they are heard of, so that a small mesh knows itself by name; of more only those that somebody asks for. */
export const EAGER_CARDS = 128
/** Cards of machines that we do not know, kept to be handed on, 6 KB each; of more, the neighbour that brought most loses its oldest. */
export const MAX_CARDS_HELD = 1_024
/** Questions of ours of one kind at once … */
const MAX_ASKS = 8
/** … and with those that wait; what is beyond is asked when the machine speaks again. */
const MAX_ASKS_UNDERWAY = 256
/** Questions of one machine, or of the strangers of one host, that are answered a minute: a newcomer asks once for each of `EAGER_CARDS`. */
export const CARD_ANSWERS_PER_MINUTE = 2 * EAGER_CARDS
/** Machines of one contact that are dialled a minute to see the card that proves their claim, of each neighbour that brings it … */
export const CLAIMS_DIALLED_PER_MINUTE = 6
/** … and of strangers' machines that claim to be a contact's so many in all: from half of them on chance decides, so that no neighbour takes all. */
export const ALL_CLAIMS_DIALLED_PER_MINUTE = 60

/** All claimants are one source. */
const CLAIMANTS = ''

/** Questions of one kind: each has places of its own, so that whoever answers none of one kind keeps none of another waiting. */
class Asks {
  readonly places = new Semaphore({ limit: MAX_ASKS })
  underway = 0
}

export interface CardsComponents {
  readonly node: Pick<MeshNode, 'connectionsTo' | 'dial' | 'handle' | 'isKnown' | 'machineId'>
  readonly presences: Pick<Presences, 'of'>
  readonly knownAgents: KnownAgents
  readonly book: Pick<AddressBook, 'mayBe'>
  readonly ownCard: Pick<SelfCard, 'current'>
  /** A card was learnt: of an agent or machine that was not proven before. */
  readonly onNewcomer: () => void
  readonly clock: Clock
  readonly log: Logger
}

/**
 * Cards on demand: who hears of a machine asks it, or the neighbour that brought the word, for the card that proves whose it
 * is. Asked for are the cards of contacts, and of strangers while they are few. What is answered is believed only with the
 * agent's signature, for the machine that says so itself.
 */
export class Cards implements Startable {
  readonly #parts: CardsComponents
  readonly #held = new BoundedMap<MachineId, Uint8Array>({ max: MAX_CARDS_HELD, isApart: (one) => this.#parts.node.isKnown(one) })
  readonly #underway = new Map<MachineId, Promise<unknown>>()
  /** Of machines that we know, of those that claim to be a contact's, and of strangers'. */
  readonly #asks = { known: new Asks(), claimed: new Asks(), stranger: new Asks() }
  readonly #answers: RateLimit
  readonly #dialled: RateLimit
  readonly #allDialled: RateLimit
  readonly #stop = new AbortController()
  /** For `/diagnostics/mesh`. */
  readonly counts = { asked: 0, learnt: 0, refused: 0, answered: 0 }

  constructor(components: CardsComponents) {
    this.#parts = components
    this.#answers = new RateLimit(components, perMinute(CARD_ANSWERS_PER_MINUTE))
    this.#dialled = new RateLimit(components, perMinute(CLAIMS_DIALLED_PER_MINUTE))
    this.#allDialled = new RateLimit(components, perMinute(ALL_CLAIMS_DIALLED_PER_MINUTE))
  }

  /** Before the node's start. */
  start(): void {
    this.#parts.node.handle(CARD_PROTOCOL, (connection, stream) => void this.#answer(connection, stream))
  }

  stop(): void {
    this.#stop.abort(new AppError('shutting_down'))
  }

  /** A machine has said that it is there. */
  heard(heard: PresenceRecord): void {
    const { knownAgents, node, book } = this.#parts
    if (knownAgents.renew(heard) || this.#underway.has(heard.machine_id)) return
    const kind = node.isKnown(heard.machine_id) ? 'known' : book.mayBe(heard.agent_id, heard.machine_id) ? 'claimed' : 'stranger'
    if (kind === 'stranger' && knownAgents.list().length >= EAGER_CARDS) return
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
    const { node, log } = this.#parts
    const { machine_id, neighbour, addresses } = heard
    try {
      await asks.places.use(this.#stop.signal, async () => {
        const nearest = node.connectionsTo(machine_id).at(-1) ?? node.connectionsTo(machineIdOfText(neighbour) ?? '').at(-1)
        // Whoever brought the word may be silent on purpose.
        if (nearest !== undefined && (await this.#askOf(nearest, heard).catch(() => false))) return
        if (asks === this.#asks.stranger || nearest?.machineId === machine_id || !this.#mayDial(heard, asks)) return
        await this.#askOf(await node.dial(machine_id, addresses, this.#stop.signal, { background: true }), heard)
      })
    } catch (error) {
      if (!this.#stop.signal.aborted) log.debug({ machine: shortId(machine_id), err: errorText(error) }, 'its card was not had')
    }
  }

  /** A contact's id is claimed for nothing, so each neighbour that brings such claims has a share of its own. */
  #mayDial({ agent_id, neighbour }: PresenceRecord, asks: Asks): boolean {
    return this.#dialled.allows(`${agent_id} ${neighbour}`) && (asks === this.#asks.known || this.#allDialled.allowsByChance(CLAIMANTS))
  }

  /** False when this machine has no such card. */
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
    // What the machine says now, not what it said when it was asked.
    const learnt = this.#parts.knownAgents.learn(card, this.#parts.presences.of(heard.machine_id) ?? heard)
    this.counts[learnt === 'refused' ? 'refused' : 'learnt'] += 1
    if (learnt === 'refused') return false
    this.#held.set(heard.machine_id, card, heard.neighbour)
    if (learnt === 'newcomer') this.#parts.onNewcomer()
    return true
  }

  /** Nothing is asked of others for it: only what is under way here is waited for. */
  async #answer(connection: MeshConnection, stream: MeshStream): Promise<void> {
    const limit = AbortSignal.any([this.#stop.signal, AbortSignal.timeout(CARD_ANSWER_MS)])
    const { node, ownCard } = this.#parts
    try {
      if (!this.#answers.allows(node.isKnown(connection.machineId) ? connection.machineId : connection.host))
        throw new AppError('rate_limited', 'too many cards asked for')
      const { machine_id } = cardAsk.decode(await unlessAborted(oneFrame(stream, MAX_CARD_ASK_BYTES), limit))
      if (machine_id !== node.machineId) await unlessAborted(Promise.resolve(this.#underway.get(machine_id)), limit)
      const card = machine_id === node.machineId ? (await ownCard.current()).encoded : this.#heldOf(machine_id)
      stream.send(encodeFrame(card))
      this.counts.answered += 1
      await stream.close()
    } catch (error) {
      stream.abort(asError(error))
    }
  }

  #heldOf(machineId: MachineId): Uint8Array {
    // Of a machine that nobody hears of any more, there is nothing to hand on.
    return (this.#parts.presences.of(machineId) === null ? undefined : this.#held.get(machineId)) ?? new Uint8Array()
  }
}

/** The first frame on a stream, which must be handed over in the turn in which it was got. */
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
  // A stream that ends before anybody waits for its frame: who would is told by the stream itself, or has given up.
  promise.catch(() => undefined)
  return promise
}
