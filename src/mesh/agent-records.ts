import { BoundedMap } from '../base/bounded-collections.ts'
import type { Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import { Semaphore } from '../base/semaphore.ts'
import type { Startable } from '../base/startable.ts'
import { SingleFlight } from '../base/wait-queue.ts'
import type { VerifiedCard } from '../identity/card.ts'
import { type AgentId, shortId } from '../protocol/ids.ts'
import { recordKeyOf } from './dht-record.ts'
import type { Dht } from './dht.ts'
import type { MeshServices } from './services.ts'

/** Interval at which this agent's record is stored again, because the machines nearest to it change and forget. */
export const PUBLISH_EVERY_MS = 30 * 60_000
/** Delay of the first attempt, until there are neighbours. It doubles after each attempt that no machine accepted. */
export const FIRST_PUBLISH_MS = 15_000
/** Minimum interval after a new server has connected. The server may have restarted, or never had the record. The delay is random, up to four times `FIRST_PUBLISH_MS`, because all its clients connect together. */
export const PUBLISH_SPACING_MS = 5 * 60_000
/** Time limit for storing the record. It is long because one slow server must not prevent it, and no request waits for it. */
const PUBLISH_MS = 60_000
/** Time limit of a lookup. */
export const LOOK_UP_MS = 8_000
/** Time limit for a newer record after one was found. Otherwise a single silent server would use up the lookup's time. */
export const SETTLE_MS = 1_000
/** Number of lookups at once. */
const MAX_LOOK_UPS = 4
/** Result of a lookup is reused for this time, so that a client in a loop causes no traffic. */
export const ASK_AGAIN_MS = 30_000
const MAX_REMEMBERED = 256

type AgentRecordsDeps = Pick<MeshServices, 'clock' | 'validator' | 'log' | 'selfCard'> & {
  readonly table: Pick<Dht, 'diagnostics' | 'onServer' | 'options' | 'put' | 'recordsOf'>
}

/** Stores this agent's card in the DHT, and looks up those of other agents. A found card only gives addresses, without proof. */
export class AgentRecords implements Startable {
  readonly #deps: AgentRecordsDeps
  readonly #agentId: AgentId
  readonly #underway = new SingleFlight<VerifiedCard | null>()
  readonly #turns = new Semaphore({ limit: MAX_LOOK_UPS })
  readonly #asked = new BoundedMap<AgentId, { readonly at: number; readonly card: VerifiedCard | null }>({ max: MAX_REMEMBERED })
  readonly #stop = new AbortController()
  /** Null while the record is being stored. */
  #timer: Timer | null = null
  /** Monotonic milliseconds, also below. */
  #nextAt = Number.POSITIVE_INFINITY
  #takenAt = Number.NEGATIVE_INFINITY
  #hasServerCome = false
  #againMs = FIRST_PUBLISH_MS
  /** For `/diagnostics/mesh`. */
  readonly counts = { published: 0, looked_for: 0, found: 0 }

  constructor(deps: AgentRecordsDeps, init: { agentId: AgentId }) {
    this.#deps = deps
    this.#agentId = init.agentId
  }

  /** Number of invalid records, from any source. */
  get refused(): number {
    return this.#deps.validator.refused
  }

  start(): void {
    const { table } = this.#deps
    if (table.options === null) return
    table.onServer = () => this.#onServer()
    this.#schedule(FIRST_PUBLISH_MS)
  }

  stop(): void {
    this.#timer?.cancel()
    this.#stop.abort()
  }

  /** Returns the newest valid card of this agent in the DHT, or null if absent. Throws the signal's reason. */
  async find(agentId: AgentId, signal: AbortSignal): Promise<VerifiedCard | null> {
    if (this.#deps.table.options === null) return null
    const asked = this.#asked.get(agentId)
    if (asked !== undefined && this.#deps.clock.monotonic() - asked.at < ASK_AGAIN_MS) return asked.card
    return this.#underway.run(agentId, async (wanted) => this.#lookFor(agentId, wanted), signal)
  }

  async #lookFor(agentId: AgentId, wanted: AbortSignal): Promise<VerifiedCard | null> {
    const leave = await this.#turns.acquire(wanted)
    const key = recordKeyOf(agentId)
    const settled = new AbortController()
    const limit = AbortSignal.any([this.#limit(wanted, LOOK_UP_MS), settled.signal])
    let best: VerifiedCard | null = null
    let settling: Timer | null = null
    this.counts.looked_for += 1
    try {
      for await (const value of this.#deps.table.recordsOf(key, limit)) {
        best = this.#better(best, key, value)
        if (best !== null) settling ??= this.#deps.clock.setTimeout(() => settled.abort(), SETTLE_MS)
      }
    } catch (error) {
      wanted.throwIfAborted()
      this.#deps.log.debug({ agent: shortId(agentId), err: errorText(error) }, 'the DHT query was not completed')
    } finally {
      settling?.cancel()
      leave()
    }
    if (best !== null) this.counts.found += 1
    // A daemon that has just started knows no servers, so an empty result is not remembered.
    if (best !== null || this.#deps.table.diagnostics().peers > 0)
      this.#asked.set(agentId, { at: this.#deps.clock.monotonic(), card: best })
    return best
  }

  #better(best: VerifiedCard | null, key: Uint8Array, value: Uint8Array): VerifiedCard | null {
    try {
      const card = this.#deps.validator.verify(key, value)
      return best === null || card.issuedAt > best.issuedAt ? card : best
    } catch {
      return best
    }
  }

  #limit(wanted: AbortSignal, ms: number): AbortSignal {
    return AbortSignal.any([wanted, this.#stop.signal, AbortSignal.timeout(ms)])
  }

  /** Schedules the next attempt unless an earlier one is scheduled. The delay is random, from `least` to 1.2 of `ms`. */
  #schedule(ms: number, least = 0.8): void {
    const { clock } = this.#deps
    const at = clock.monotonic() + Math.ceil(ms * (least + Math.random() * (1.2 - least)))
    if (this.#timer !== null && at >= this.#nextAt) return
    this.#timer?.cancel()
    this.#nextAt = at
    this.#timer = clock.setTimeout(() => void this.#publish(), at - clock.monotonic(), { unref: true })
  }

  #onServer(): void {
    this.#hasServerCome = true
    if (this.#timer === null || this.#stop.signal.aborted) return
    const spacing = this.#takenAt + PUBLISH_SPACING_MS - this.#deps.clock.monotonic()
    this.#schedule(Math.max(FIRST_PUBLISH_MS * (1 + 3 * Math.random()), spacing), 1)
  }

  async #publish(): Promise<void> {
    this.#timer = null
    this.#hasServerCome = false
    const takers = await this.#put()
    if (this.#stop.signal.aborted) return
    if (takers > 0) {
      this.counts.published += 1
      this.#takenAt = this.#deps.clock.monotonic()
    }
    this.#againMs = takers > 0 ? FIRST_PUBLISH_MS : Math.min(2 * this.#againMs, PUBLISH_EVERY_MS)
    this.#schedule(takers > 0 ? PUBLISH_EVERY_MS : this.#againMs)
    if (this.#hasServerCome) this.#onServer()
  }

  /** Returns how many machines stored the record. */
  async #put(): Promise<number> {
    const { table, selfCard, log } = this.#deps
    try {
      const { encoded } = await selfCard.current()
      return await table.put(recordKeyOf(this.#agentId), encoded, this.#limit(this.#stop.signal, PUBLISH_MS))
    } catch (error) {
      log.debug({ err: errorText(error) }, 'the record of this agent was not published')
      return 0
    }
  }
}
