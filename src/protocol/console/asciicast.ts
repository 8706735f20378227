import { visibleJson } from '../../base/visible-text.ts'
import { jsonText } from '../lines.ts'

// Lines of an asciicast of version 2 (docs.asciinema.org/manual/asciicast/v2): a header, then events.

export interface CastSize {
  readonly width: number
  readonly height: number
}

export interface CastHeader extends CastSize {
  /** Start in seconds since the Unix epoch. */
  readonly timestamp?: number
  readonly title: string
  /** Maximum pause of a player while nothing happens, in seconds. */
  readonly idle_time_limit?: number
  /** The variable TERM. */
  readonly term: string
  /** Further fields, which players ignore. */
  readonly x0x?: object
}

/** Kind of an event: output, or a new size as `WIDTHxHEIGHT`. */
export type CastKind = 'o' | 'r'

export interface CastEvent {
  /** Milliseconds since the start. */
  readonly ms: number
  readonly kind: CastKind
  readonly text: string
}

export const castHeader = ({ width, height, timestamp, title, idle_time_limit, term, x0x }: CastHeader): string =>
  `${visibleJson(jsonText({ version: 2, width, height, timestamp, idle_time_limit, title, env: { TERM: term }, x0x }))}\n`

export const castEvent = ({ ms, kind, text }: CastEvent): string => `${visibleJson(jsonText([Math.round(ms) / 1_000, kind, text]))}\n`

/** Parses a line that has an event. Null for other lines, such as the header. */
export const parseCastEvent = (line: Uint8Array): CastEvent | null => {
  const value = parsed(line)
  if (!Array.isArray(value) || value.length !== 3) return null
  const [seconds, kind, text] = value as [unknown, unknown, unknown]
  if (typeof seconds !== 'number' || !(seconds >= 0) || typeof text !== 'string') return null
  return kind === 'o' || kind === 'r' ? { ms: seconds * 1_000, kind, text } : null
}

/** The fields of a header as they are, or null for a line that is not a header. */
export const parseCastHeader = (line: Uint8Array): Readonly<Record<string, unknown>> | null => {
  const value = parsed(line)
  const isHeader = typeof value === 'object' && value !== null && (value as { version?: unknown }).version === 2
  return isHeader ? (value as Record<string, unknown>) : null
}

const parsed = (line: Uint8Array): unknown => {
  try {
    return JSON.parse(Buffer.from(line).toString('utf8'))
  } catch {
    return null
  }
}
