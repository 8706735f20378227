import { BoundedMap } from '../base/bounded-collections.ts'
import { shellWords } from '../base/format.ts'
import { type JournalLine, keyOf } from './events.ts'

/** Characters of a command that are kept of each entry: no terminal shows more. */
const MAX_COMMAND = 256

export type TimelineEnd = { readonly code: number | null; readonly signal: number | null } | { readonly refused: string } | 'lost' | null

/** A run, or a refusal, which begins and ends at once. */
export interface TimelineEntry {
  readonly request_id: string | null
  /** Whose: an agent's id, or what a caller of this host calls itself. */
  readonly agent_id: string | null
  readonly client_name: string | null
  /** As a shell would take it, cut. */
  readonly command: string
  readonly began_at: string
  /** Null: the journal has no end of it, or does not know when. */
  readonly ended_at: string | null
  readonly end: TimelineEnd
}

/** What a journal tells of runs and refusals in time: the newest, in the order in which they began. */
export class Timeline {
  readonly #entries: BoundedMap<string, TimelineEntry>
  #named = 0
  /** Refusals that were counted instead of written. */
  suppressed = 0

  constructor(init: { readonly max: number }) {
    this.#entries = new BoundedMap(init)
  }

  get entries(): TimelineEntry[] {
    return [...this.#entries.values()]
  }

  add(line: JournalLine): void {
    if (line.event === 'request') this.#entries.set(keyOf(line), { ...this.#started(line, line.argv), ended_at: null, end: null })
    else if (line.event === 'exit') this.#end(keyOf(line), line.ts, { code: line.code, signal: line.signal })
    else if (line.event === 'lost') this.#end(keyOf(line), null, 'lost')
    else if (line.event === 'denial') this.#refuse(line, line.argv, line.reason)
    else if (line.event === 'refused') this.#refuse(line, line.argv ?? [line.method], line.code)
    else if (line.event === 'refusals_suppressed') this.suppressed += line.count
  }

  #started(
    line: { readonly ts: string; readonly request_id?: string; readonly agent_id?: string; readonly client_name?: string },
    argv: readonly string[],
  ): Omit<TimelineEntry, 'ended_at' | 'end'> {
    const { request_id = null, agent_id = null, client_name = null, ts } = line
    return { request_id, agent_id, client_name, command: shellWords(argv).slice(0, MAX_COMMAND), began_at: ts }
  }

  /** In the place of its beginning: a map that is set again would take it for the newest. */
  #end(key: string, ended_at: string | null, end: TimelineEnd): void {
    const entry = this.#entries.get(key)
    if (entry?.end === null) Object.assign(entry, { ended_at, end })
  }

  #refuse(line: JournalLine & { readonly event: 'denial' | 'refused' }, argv: readonly string[], reason: string): void {
    this.#named += 1
    this.#entries.set(`refused ${this.#named}`, { ...this.#started(line, argv), ended_at: line.ts, end: { refused: reason } })
  }
}
