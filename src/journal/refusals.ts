import { createHash } from 'node:crypto'
import type { Clock, Timer } from '../base/clock.ts'
import { RateLimit, TokenBucket } from '../base/rate-limit.ts'
import { MAX_NAMED_REASONS, MAX_NAMED_SOURCES } from '../protocol/limits/daemon.ts'
import { isOfUnlisted } from '../protocol/reasons.ts'
import type { RefusalEvent, RefusalsSuppressedEvent } from './events.ts'
import type { ArgvCut } from './run-key.ts'

/** Bytes of a refused argv that are written, since whoever asked chose it; its size and its hash are of the whole. */
export const MAX_REFUSED_ARGV = 256
/** Characters of the reason. */
const MAX_REFUSED_DETAIL = 512
/** Refusals of one source that are written, each 4 KiB at most: a client that is wrong shows at once, and one that asks without end fills no disk. */
export const REFUSAL_LINES = { burst: 256, perSecond: 1 }
/** … of all strangers together, and of all trusted agents: some 1 GB in a day for each. Of the doors of this host there are few. */
export const REFUSAL_TOTAL_LINES = { burst: 2048, perSecond: 8 }
/** Sources of refusals that are not written and whose names are kept for the summary. */
const MAX_REFUSAL_SOURCES = 1024
/** How soon what was not written is told, in one line. */
export const REFUSAL_SUMMARY_MS = 60_000

/** The beginning of an argv in so many bytes of UTF-8. */
const beginningOf = (argv: readonly string[]): string[] => {
  const kept: string[] = []
  let left = MAX_REFUSED_ARGV
  for (const token of argv) {
    if (left <= 0) break
    // A character that is cut in two is left out.
    const text = Buffer.from(token)
      .subarray(0, left)
      .toString('utf8')
      .replace(/\ufffd$/, '')
    kept.push(text)
    left -= Math.max(1, Buffer.byteLength(token))
  }
  return kept
}

/** Its beginning, where it is long, and what is known of the whole. */
export const cutOf = (argv: readonly string[]): { argv: readonly string[]; argv_cut?: ArgvCut } => {
  const bytes = argv.reduce((sum, token) => sum + Math.max(1, Buffer.byteLength(token)), 0)
  if (bytes <= MAX_REFUSED_ARGV) return { argv }
  const sha256 = createHash('sha256').update(JSON.stringify(argv)).digest('hex')
  return { argv: beginningOf(argv), argv_cut: { tokens: argv.length, bytes, sha256 } }
}

/** The event as it is written: cut, since whoever is refused chose its argv. */
export const shortened = <E extends RefusalEvent>(event: E): E => {
  const { detail } = event
  const short = detail !== null && detail.length > MAX_REFUSED_DETAIL ? `${detail.slice(0, MAX_REFUSED_DETAIL)}…` : detail
  return { ...event, detail: short, ...('argv' in event && event.argv !== null ? cutOf(event.argv) : {}) }
}

type Kind = 'stranger' | 'agent' | 'own'

interface Source {
  readonly kind: Kind
  readonly name: string
}

/**
 * Who is metered: a stranger on a machine, who may name whomever he likes; a trusted agent, which has as many machines as
 * it makes keys; a door of this host, whose callers are one principal; whoever speaks for operators.
 */
const sourceOf = (event: RefusalEvent): Source => {
  if (event.event === 'rules') return { kind: 'agent', name: event.agent_id }
  if (event.event !== 'denial') return { kind: 'own', name: event.event === 'refused' ? event.door : event.event }
  if (!isOfUnlisted(event.reason)) return { kind: 'agent', name: event.agent_id }
  return { kind: 'stranger', name: `stranger ${event.agent_id}.${event.machine_id}` }
}

const reasonOf = (event: RefusalEvent): string => {
  if (event.event === 'rules') return event.event
  return 'reason' in event ? event.reason : (event.code ?? 'other')
}

/** Bounds the lines of each source of one kind, and of all of them together; `total` is null where there are few sources. */
interface Meter {
  readonly sources: RateLimit
  readonly total: TokenBucket | null
}

/** What was not written, in bounded memory. */
class Counted {
  readonly #from: number
  #to: number
  #count = 0
  /** Strangers apart, since they are as many as they like. */
  readonly #names = { stranger: new Set<string>(), other: new Set<string>() }
  readonly #reasons = new Map<string, number>()

  constructor(now: number) {
    this.#from = now
    this.#to = now
  }

  add(event: RefusalEvent, now: number): void {
    const { kind, name } = sourceOf(event)
    this.#record(kind === 'stranger' ? kind : 'other', name)
    this.#more(reasonOf(event), 1)
    this.#count += 1
    this.#to = now
  }

  /** With what was counted later, if anything. */
  join(later: Counted | null): this {
    if (later === null) return this
    for (const kind of ['stranger', 'other'] as const) for (const name of later.#names[kind]) this.#record(kind, name)
    for (const [reason, count] of later.#reasons) this.#more(reason, count)
    this.#count += later.#count
    this.#to = later.#to
    return this
  }

  get event(): RefusalsSuppressedEvent {
    const names = [...this.#names.other, ...this.#names.stranger]
    return {
      event: 'refusals_suppressed',
      count: this.#count,
      sources: names.length,
      named: names.slice(0, MAX_NAMED_SOURCES),
      reasons: Object.fromEntries(this.#reasons),
      from: new Date(this.#from).toISOString(),
      to: new Date(this.#to).toISOString(),
    }
  }

  #record(kind: 'stranger' | 'other', name: string): void {
    if (this.#names[kind].size < MAX_REFUSAL_SOURCES) this.#names[kind].add(name)
  }

  #more(reason: string, count: number): void {
    const isNamed = this.#reasons.has(reason) || this.#reasons.size < MAX_NAMED_REASONS
    const name = isNamed ? reason : 'other'
    this.#reasons.set(name, (this.#reasons.get(name) ?? 0) + count)
  }
}

/** Which refusals are written: so many of each source and of all, none of them long; the others are counted, and the count is written. */
export class Refusals {
  readonly #clock: Clock
  readonly #write: (event: RefusalsSuppressedEvent) => Promise<void>
  /** Each by itself: however many strangers there are, what an operator or a trusted peer was refused is written. */
  readonly #meters: Readonly<Record<Kind, Meter>>
  #suppressed: Counted | null = null
  #timer: Timer | null = null

  constructor(components: { clock: Clock }, init: { write: (event: RefusalsSuppressedEvent) => Promise<void> }) {
    this.#clock = components.clock
    this.#write = init.write
    const sources = (): RateLimit => new RateLimit(components, REFUSAL_LINES)
    const total = (): TokenBucket => new TokenBucket(components, REFUSAL_TOTAL_LINES)
    this.#meters = {
      stranger: { sources: sources(), total: total() },
      agent: { sources: sources(), total: total() },
      own: { sources: sources(), total: null },
    }
  }

  /** False: it is counted instead. */
  admits(event: RefusalEvent): boolean {
    const { kind, name } = sourceOf(event)
    const { sources, total } = this.#meters[kind]
    if (sources.allows(name) && total?.take() !== false) return true
    this.suppress(event)
    return false
  }

  suppress(event: RefusalEvent): void {
    const now = this.#clock.now()
    this.#suppressed ??= new Counted(now)
    this.#suppressed.add(event, now)
    this.#timer ??= this.#clock.setTimeout(() => void this.#due(), REFUSAL_SUMMARY_MS, { unref: true })
  }

  /** Writes what was counted; keeps it where it cannot be written. */
  async summarise(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    const counted = this.#suppressed
    if (counted === null) return
    this.#suppressed = null
    try {
      await this.#write(counted.event)
    } catch (error) {
      this.#suppressed = counted.join(this.#suppressed)
      throw error
    }
  }

  async #due(): Promise<void> {
    await this.summarise().catch(() => {
      this.#timer ??= this.#clock.setTimeout(() => void this.#due(), REFUSAL_SUMMARY_MS, { unref: true })
    })
  }
}
