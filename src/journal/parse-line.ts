import { isRequestId } from '../protocol/ids.ts'
import {
  type FieldTable,
  type Fields,
  count,
  integer,
  isTable,
  isText,
  map,
  matching,
  orNull,
  problemOf,
  record,
  tested,
  text,
  texts,
} from '../protocol/json-table.ts'
import { LIFE_EVENTS } from './chain-events.ts'
import { JOURNAL_EVENTS, type JournalLine } from './events.ts'

/** Events of a session's runs. */
const LOCAL_RUN_EVENTS = ['request', 'started', 'warning', 'exit', 'lost']
/** Beginning of each line, also of a torn one. */
const BEGINNING = '{"ts":"'

const sha256 = matching(/^[0-9a-f]{64}$/, 'a hash')
const time = matching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/, 'a time')
const id = tested<string>((value) => isText(value) && isRequestId(value), 'an id')
const textOrNull = orNull(text)

/** Position in a chain, which lines of all versions have. */
const PLACE = { n: count, ts: time, prev: sha256, chain: id }
const SIGNER = orNull(record({ agent_id: sha256, public_key: text }))
const LINE_REF = orNull(record({ chain: text, n: count, sha256 }))
const ENDED = { signer: SIGNER, signature: textOrNull }

/** Fields of lines that concern no run. */
const OTHER_LINES: Readonly<Record<string, FieldTable>> = {
  ...Object.fromEntries(LIFE_EVENTS.map((event) => [event, ENDED])),
  began: { signer: SIGNER, version: text, after: LINE_REF },
  refusals_suppressed: {
    named: texts,
    reasons: map(text, integer),
    count: integer,
    sources: integer,
    from: time,
    to: time,
  },
  reload: { outcome: text, file: text, sha256: textOrNull, detail: textOrNull },
  http_refused: { code: text, method: text, path: text, host: textOrNull, origin: textOrNull, remote: textOrNull },
  authority: { operation: text, agent: textOrNull, machine: textOrNull, level: textOrNull, code: textOrNull, detail: textOrNull },
  question: {
    question_id: text,
    permit_sha256: text,
    door: text,
    asker: text,
    engine: text,
    executable: text,
    cwd: text,
    host: text,
    why: text,
    session: textOrNull,
    target: textOrNull,
    always_ask: textOrNull,
  },
  approval: { outcome: text, by: text, reason: text, question_id: textOrNull, permit_sha256: textOrNull },
  store_changed: { change: text, by: text, detail: text, agent: textOrNull },
  desk_refused: { code: text, detail: text, role: textOrNull, name: textOrNull },
}
const OF_PEER = { agent_id: sha256, machine_id: sha256, request_id: id }
const OF_SESSION = { door: text, session_id: text, client_name: text }

const has = (line: Fields, fields: FieldTable): boolean => problemOf(line, fields) === null

const isKnown = (line: Fields): boolean => JOURNAL_EVENTS.some((event) => event === line['event'])

const isOfLocalSession = (line: Fields): boolean => {
  const event = String(line['event'])
  const isOfRun = LOCAL_RUN_EVENTS.includes(event) || (event === 'refused' && 'request_id' in line)
  const named = isOfRun ? has(line, { request_id: id }) : line['request_id'] === undefined
  return has(line, OF_SESSION) && !('agent_id' in line) && named
}

const isLine = (value: unknown): value is JournalLine => {
  if (!isTable(value) || !isKnown(value) || !has(value, PLACE)) return false
  const stated = OTHER_LINES[String(value['event'])]
  return (stated !== undefined && has(value, stated)) || isOfLocalSession(value) || has(value, OF_PEER)
}

const parsed = (bytes: Uint8Array): unknown => {
  try {
    return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'))
  } catch {
    return null
  }
}

export const parseLine = (bytes: Uint8Array): JournalLine | null => {
  const value = parsed(bytes)
  return isLine(value) ? value : null
}

/** A line with an unknown event. Only its position in the chain is known. */
export interface LaterLine extends Pick<JournalLine, 'chain' | 'n' | 'prev' | 'ts'> {
  readonly event: null
  readonly called: string
}

/** Parses lines that `parseLine` does not know, as of a later version that wrote this file before a downgrade. */
export const parseLaterLine = (bytes: Uint8Array): LaterLine | null => {
  const value = parsed(bytes)
  if (!isTable(value) || !isText(value['event']) || isKnown(value) || !has(value, PLACE)) return null
  const { chain, n, prev, ts } = value as unknown as LaterLine
  return { chain, n, prev, ts, event: null, called: String(value['event']) }
}

/**
 * True for the beginning of one line that a crash or a full disk cut off. It has no number in its chain, so a line that was shortened by
 * hand leaves a gap and is detected.
 */
export const isTorn = (bytes: Uint8Array): boolean => {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')
  // Quotes inside a line are escaped, so a second beginning means that two lines were joined.
  if (!text.startsWith(BEGINNING.slice(0, text.length)) || text.includes(BEGINNING, 1)) return false
  try {
    JSON.parse(text)
    return false
  } catch {
    return true
  }
}
