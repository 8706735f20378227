import { createHash } from 'node:crypto'
import type { Clock, Timer } from '../base/clock.ts'
import { RateLimit, TokenBucket } from '../base/rate-limit.ts'
import { MAX_NAMED_REASONS, MAX_NAMED_SOURCES } from '../protocol/limits/daemon.ts'
import { isOfUnlisted } from '../protocol/reasons.ts'
import type { RefusalEvent, RefusalsSuppressedEvent } from './events.ts'
import type { ArgvCut } from './run-key.ts'

/** Bytes of a refused argv that are written, because the requester chose it. Size and hash are those of the whole. */
export const MAX_REFUSED_ARGV = 256
const MAX_REFUSED_DETAIL = 512
/**
 * Refusals of one source that are written, each at most 4 KiB: a mistaken client is visible at once, and a persistent one fills no disk.
 */
export const REFUSAL_LINES = { burst: 256, perSecond: 1 }
/** … of all unlisted peers together, and of all trusted agents together: some 1 GB a day for each. Local interfaces are few. */
export const REFUSAL_TOTAL_LINES = { burst: 2048, perSecond: 8 }
/** Named sources of unwritten refusals in the summary. */
const MAX_REFUSAL_SOURCES = 1024
/** Interval of the summary line about unwritten refusals. */
export const REFUSAL_SUMMARY_MS = 60_000

/** The beginning of an argv in this many bytes of UTF-8. */
const beginningOf = (argv: readonly string[]): string[] => {
  const kept: string[] = []
  let left = MAX_REFUSED_ARGV
  for (const token of argv) {
    if (left <= 0) break
    // A split character is left out.
    const text = Buffer.from(token)
      .subarray(0, left)
      .toString('utf8')
      .replace(/\ufffd$/, '')
    kept.push(text)
    left -= Math.max(1, Buffer.byteLength(token))
  }
  return kept
}

/** The beginning of a long argv, with size and hash of the whole. */
export const cutOf = (argv: readonly string[]): { argv: readonly string[]; argv_cut?: ArgvCut } => {
  const bytes = argv.reduce((sum, token) => sum + Math.max(1, Buffer.byteLength(token)), 0)
  if (bytes <= MAX_REFUSED_ARGV) return { argv }
  const sha256 = createHash('sha256').update(JSON.stringify(argv)).digest('hex')
  return { argv: beginningOf(argv), argv_cut: { tokens: argv.length, bytes, sha256 } }
}

/** The event with its argv cut, because the refused requester chose it. */
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
 * Source of a refusal: an unlisted peer on a machine, which may claim any agent. A trusted agent, which can make any number of machine
 * keys; a local interface, whose clients count as one; or operators.
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

/** Rate limits of each source of one kind and of all together. `total` is null for kinds with few sources. */
interface Meter {
  readonly sources: RateLimit
  readonly total: TokenBucket | null
}

/** Unwritten refusals, counted in bounded memory. */
class Counted {
  readonly #from: number
  #to: number
  #count = 0
  /** Unlisted peers are separate, because there can be any number of them. */
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

/** Decides which refusals are written: limited for each source and in all, and shortened. Others are counted, and the count is written. */
export class Refusals {
  readonly #clock: Clock
  readonly #write: (event: RefusalsSuppressedEvent) => Promise<void>
  /** Separate meters, so that unlisted peers cannot suppress lines about an operator or a trusted peer. */
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

  /** False if the refusal is counted instead. */
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

  /** Writes the count, or keeps it if that fails. */
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
