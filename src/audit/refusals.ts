import { createHash } from 'node:crypto'

import type { Clock, Timer } from '../base/clock.ts'
import { TokenBucket } from '../base/token-bucket.ts'
import {
  MAX_REFUSAL_SOURCES,
  MAX_REFUSED_ARGV,
  MAX_REFUSED_DETAIL,
  REFUSAL_LINES,
  REFUSAL_SUMMARY_MS,
  REFUSAL_TOTAL_LINES,
} from '../protocol/local-limits.ts'
import { isOfStranger } from '../protocol/reasons.ts'
import type { ArgvCut, RefusalEvent, RefusalsSuppressedEvent } from './events.ts'

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

const cutOf = (argv: readonly string[]): { argv: readonly string[]; argv_cut?: ArgvCut } => {
  const bytes = argv.reduce((sum, token) => sum + Math.max(1, Buffer.byteLength(token)), 0)
  if (bytes <= MAX_REFUSED_ARGV) return { argv }
  const sha256 = createHash('sha256').update(JSON.stringify(argv)).digest('hex')
  return { argv: beginningOf(argv), argv_cut: { tokens: argv.length, bytes, sha256 } }
}

/** As it is written: whoever is refused chose the argv, and pays for no disk. */
export const shortened = <E extends RefusalEvent>(event: E): E => {
  const { detail } = event
  const short = detail !== null && detail.length > MAX_REFUSED_DETAIL ? `${detail.slice(0, MAX_REFUSED_DETAIL)}…` : detail
  return { ...event, detail: short, ...('argv' in event && event.argv !== null ? cutOf(event.argv) : {}) }
}

/** Who is metered: a pair of the mesh, a door of this host, whose callers are one principal, or whoever speaks for operators. */
const sourceOf = (event: RefusalEvent): string =>
  'agent_id' in event ? `${event.agent_id}.${event.machine_id}` : event.event === 'refused' ? event.door : event.event

interface Counted {
  count: number
  readonly sources: Set<string>
  readonly from: number
  to: number
}

/** Which refusals are written: so many of each source and of all, none of them long; the others are counted, and the count is written. */
export class Refusals {
  readonly #clock: Clock
  readonly #write: (event: RefusalsSuppressedEvent) => Promise<void>
  readonly #ofStrangers: TokenBucket
  /** Of all others: however many strangers there are, what an operator or a trusted peer was refused is written. */
  readonly #ofKnown: TokenBucket
  /** The oldest first. */
  readonly #sources = new Map<string, TokenBucket>()
  #suppressed: Counted | null = null
  #timer: Timer | null = null

  constructor(components: { clock: Clock }, init: { write: (event: RefusalsSuppressedEvent) => Promise<void> }) {
    this.#clock = components.clock
    this.#write = init.write
    this.#ofStrangers = new TokenBucket(components, REFUSAL_TOTAL_LINES)
    this.#ofKnown = new TokenBucket(components, REFUSAL_TOTAL_LINES)
  }

  /** False: it is counted instead. */
  admits(event: RefusalEvent): boolean {
    // Nor do they share a source's: a stranger may name whomever he likes.
    const stranger = event.event === 'denial' && isOfStranger(event.reason)
    const own = this.#of(`${stranger ? 'stranger ' : ''}${sourceOf(event)}`)
    if (own.take() && (stranger ? this.#ofStrangers : this.#ofKnown).take()) return true
    this.suppress(event)
    return false
  }

  suppress(event: RefusalEvent): void {
    const source = sourceOf(event)
    const now = this.#clock.now()
    this.#suppressed ??= { count: 0, sources: new Set(), from: now, to: now }
    this.#suppressed.count += 1
    this.#suppressed.to = now
    if (this.#suppressed.sources.size < MAX_REFUSAL_SOURCES) this.#suppressed.sources.add(source)
    this.#timer ??= this.#clock.setTimeout(() => void this.#due(), REFUSAL_SUMMARY_MS, { unref: true })
  }

  /** Writes what was counted; keeps it where it cannot be written. */
  async summarise(): Promise<void> {
    this.#timer?.cancel()
    this.#timer = null
    const counted = this.#suppressed
    if (counted === null) return
    this.#suppressed = null
    const { count, sources, from, to } = counted
    const [first, last] = [new Date(from).toISOString(), new Date(to).toISOString()]
    try {
      await this.#write({ event: 'refusals_suppressed', count, sources: sources.size, from: first, to: last })
    } catch (error) {
      const since = this.#since()
      this.#suppressed = { count: count + (since?.count ?? 0), sources, from, to: since?.to ?? to }
      throw error
    }
  }

  /** What was counted meanwhile. */
  #since(): Counted | null {
    return this.#suppressed
  }

  async #due(): Promise<void> {
    await this.summarise().catch(() => {
      this.#timer ??= this.#clock.setTimeout(() => void this.#due(), REFUSAL_SUMMARY_MS, { unref: true })
    })
  }

  #of(source: string): TokenBucket {
    const known = this.#sources.get(source)
    if (known !== undefined) return known
    const oldest = this.#sources.keys().next().value
    if (this.#sources.size >= MAX_REFUSAL_SOURCES && oldest !== undefined) this.#sources.delete(oldest)
    const made = new TokenBucket({ clock: this.#clock }, REFUSAL_LINES)
    this.#sources.set(source, made)
    return made
  }
}
