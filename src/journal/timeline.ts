import { BoundedMap } from '../base/bounded-collections.ts'
import { shellWords } from '../base/format.ts'
import { type JournalLine, keyOf } from './events.ts'

/** Stored characters of a command: as many as a terminal can show. */
const MAX_COMMAND = 256

export type TimelineEnd = { readonly code: number | null; readonly signal: number | null } | { readonly refused: string } | 'lost' | null

/** A run, or a refusal with equal beginning and end. */
export interface TimelineEntry {
  readonly request_id: string | null
  /** ID of an agent, or name that a local client gives itself. */
  readonly agent_id: string | null
  readonly client_name: string | null
  /** Quoted for a shell, and cut. */
  readonly command: string
  readonly began_at: string
  /** Null if the end is unknown or has no time. */
  readonly ended_at: string | null
  readonly end: TimelineEnd
}

/** The newest runs and refusals of a journal in the order of their beginning. */
export class Timeline {
  readonly #entries: BoundedMap<string, TimelineEntry>
  #named = 0
  /** Number of refusals that were counted instead of written. */
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

  /** Keeps the entry's place, because setting a map's key again would make it the newest. */
  #end(key: string, ended_at: string | null, end: TimelineEnd): void {
    const entry = this.#entries.get(key)
    if (entry?.end === null) Object.assign(entry, { ended_at, end })
  }

  #refuse(line: JournalLine & { readonly event: 'denial' | 'refused' }, argv: readonly string[], reason: string): void {
    this.#named += 1
    this.#entries.set(`refused ${this.#named}`, { ...this.#started(line, argv), ended_at: line.ts, end: { refused: reason } })
  }
}
