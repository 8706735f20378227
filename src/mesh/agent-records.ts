import { BoundedMap } from '../base/bounded-collections.ts'
import type { Clock, Timer } from '../base/clock.ts'
import { errorText } from '../base/errors.ts'
import type { Logger } from '../base/log.ts'
import { Semaphore } from '../base/semaphore.ts'
import type { Startable } from '../base/startable.ts'
import { SingleFlight } from '../base/wait-queue.ts'
import type { VerifiedCard } from '../identity/card.ts'
import { type AgentId, shortId } from '../protocol/ids.ts'
import { type RecordValidator, recordKeyOf } from './dht-record.ts'
import type { Dht } from './dht.ts'
import type { SelfCard } from './self-card.ts'

/** Our own record is put again this often: the machines nearest to it change, and forget. */
export const PUBLISH_EVERY_MS = 30 * 60_000
/** The first time, once there are neighbours to put it to; where nobody took it, again after twice as long each time. */
export const FIRST_PUBLISH_MS = 15_000
/** After a server has come, which may have begun anew and forgotten it, or never had it: within five times `FIRST_PUBLISH_MS`, since all its clients come to it together, and so long after the last time at the earliest. */
export const PUBLISH_SPACING_MS = 5 * 60_000
/** How long our record may take to be put. Nobody waits for it, and one slow server that names machines which are not there must not be in its way. */
const PUBLISH_MS = 60_000
/** How long another's may be looked for, … */
export const LOOK_UP_MS = 8_000
/** … and, where one was found, a newer one: a single server that is silent or gone would else take all that time of whoever waits. */
export const SETTLE_MS = 1_000
/** Agents looked for at once. */
const MAX_LOOK_UPS = 4
/** What was found, or not, is not looked for again before this, so that a caller in a loop asks nobody. */
export const ASK_AGAIN_MS = 30_000
const MAX_REMEMBERED = 256

export interface AgentRecordsComponents {
  readonly table: Pick<Dht, 'diagnostics' | 'onServer' | 'options' | 'put' | 'recordsOf'>
  readonly judge: RecordValidator
  readonly ownCard: Pick<SelfCard, 'current'>
  readonly clock: Clock
  readonly log: Logger
}

/** Our card in the hash table, and those of agents whom nobody near has heard of. What is found says where to knock, and nothing else: the link proves who answers. */
export class AgentRecords implements Startable {
  readonly #parts: AgentRecordsComponents
  readonly #agentId: AgentId
  readonly #underway = new SingleFlight<VerifiedCard | null>()
  readonly #turns = new Semaphore({ limit: MAX_LOOK_UPS })
  readonly #asked = new BoundedMap<AgentId, { readonly at: number; readonly card: VerifiedCard | null }>({ max: MAX_REMEMBERED })
  readonly #stop = new AbortController()
  /** Null while our record is being put. */
  #timer: Timer | null = null
  /** Monotonic milliseconds, as is the next. */
  #nextAt = Number.POSITIVE_INFINITY
  #takenAt = Number.NEGATIVE_INFINITY
  #hasServerCome = false
  #againMs = FIRST_PUBLISH_MS
  /** For `/diagnostics/mesh`. */
  readonly counts = { published: 0, looked_for: 0, found: 0 }

  constructor(components: AgentRecordsComponents, init: { agentId: AgentId }) {
    this.#parts = components
    this.#agentId = init.agentId
  }

  /** Records that were not believed, wherever they came from. */
  get refused(): number {
    return this.#parts.judge.refused
  }

  start(): void {
    const { table } = this.#parts
    if (table.options === null) return
    table.onServer = () => this.#onServer()
    this.#schedule(FIRST_PUBLISH_MS)
  }

  stop(): void {
    this.#timer?.cancel()
    this.#stop.abort()
  }

  /** The newest card of this agent that the hash table has and that is believed; null where there is none. Throws the signal's reason. */
  async find(agentId: AgentId, signal: AbortSignal): Promise<VerifiedCard | null> {
    if (this.#parts.table.options === null) return null
    const asked = this.#asked.get(agentId)
    if (asked !== undefined && this.#parts.clock.monotonic() - asked.at < ASK_AGAIN_MS) return asked.card
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
      for await (const value of this.#parts.table.recordsOf(key, limit)) {
        best = this.#better(best, key, value)
        if (best !== null) settling ??= this.#parts.clock.setTimeout(() => settled.abort(), SETTLE_MS)
      }
    } catch (error) {
      wanted.throwIfAborted()
      this.#parts.log.debug({ agent: shortId(agentId), err: errorText(error) }, 'the hash table was not asked to the end')
    } finally {
      settling?.cancel()
      leave()
    }
    if (best !== null) this.counts.found += 1
    // Of a daemon that has just started, nobody was asked.
    if (best !== null || this.#parts.table.diagnostics().peers > 0)
      this.#asked.set(agentId, { at: this.#parts.clock.monotonic(), card: best })
    return best
  }

  #better(best: VerifiedCard | null, key: Uint8Array, value: Uint8Array): VerifiedCard | null {
    try {
      const card = this.#parts.judge.verify(key, value)
      return best === null || card.issuedAt > best.issuedAt ? card : best
    } catch {
      return best
    }
  }

  #limit(wanted: AbortSignal, ms: number): AbortSignal {
    return AbortSignal.any([wanted, this.#stop.signal, AbortSignal.timeout(ms)])
  }

  /** Not later than it is to be put anyway, and after `least` of the time. */
  #schedule(ms: number, least = 0.8): void {
    const { clock } = this.#parts
    const at = clock.monotonic() + Math.ceil(ms * (least + Math.random() * (1.2 - least)))
    if (this.#timer !== null && at >= this.#nextAt) return
    this.#timer?.cancel()
    this.#nextAt = at
    this.#timer = clock.setTimeout(() => void this.#publish(), at - clock.monotonic(), { unref: true })
  }

  #onServer(): void {
    this.#hasServerCome = true
    if (this.#timer === null || this.#stop.signal.aborted) return
    const spacing = this.#takenAt + PUBLISH_SPACING_MS - this.#parts.clock.monotonic()
    this.#schedule(Math.max(FIRST_PUBLISH_MS * (1 + 3 * Math.random()), spacing), 1)
  }

  async #publish(): Promise<void> {
    this.#timer = null
    this.#hasServerCome = false
    const takers = await this.#put()
    if (this.#stop.signal.aborted) return
    if (takers > 0) {
      this.counts.published += 1
      this.#takenAt = this.#parts.clock.monotonic()
    }
    this.#againMs = takers > 0 ? FIRST_PUBLISH_MS : Math.min(2 * this.#againMs, PUBLISH_EVERY_MS)
    this.#schedule(takers > 0 ? PUBLISH_EVERY_MS : this.#againMs)
    if (this.#hasServerCome) this.#onServer()
  }

  /** How many took our record. */
  async #put(): Promise<number> {
    const { table, ownCard, log } = this.#parts
    try {
      const { encoded } = await ownCard.current()
      return await table.put(recordKeyOf(this.#agentId), encoded, this.#limit(this.#stop.signal, PUBLISH_MS))
    } catch (error) {
      log.debug({ err: errorText(error) }, 'our record was not put')
      return 0
    }
  }
}
