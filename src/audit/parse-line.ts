import { isRequestId } from '../protocol/ids.ts'
import { JOURNAL_EVENTS, type JournalLine } from './events.ts'
import { LIFE_EVENTS } from './life-events.ts'

const HEX_64 = /^[0-9a-f]{64}$/
const TIME = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/
/** Of a session's lines, those of its runs. */
const LOCAL_RUN_EVENTS = ['request', 'started', 'warning', 'exit', 'lost']
/** How every line of ours begins, and so also one that was torn. */
const BEGINNING = '{"ts":"'

type Fields = Record<string, unknown>

const isTable = (value: unknown): value is Fields => typeof value === 'object' && value !== null
const isText = (value: unknown, form = /^/): boolean => typeof value === 'string' && form.test(value)

const isSigner = (value: unknown): boolean =>
  value === null || (isTable(value) && isText(value['agent_id'], HEX_64) && isText(value['public_key']))

/** A place in a chain, from 0. */
const isPlace = (value: unknown): boolean => Number.isSafeInteger(value) && Number(value) >= 0

const isLineRef = (value: unknown): boolean =>
  value === null || (isTable(value) && isText(value['chain']) && isPlace(value['n']) && isText(value['sha256'], HEX_64))

const isCount = (line: Fields): boolean =>
  line['event'] === 'refusals_suppressed' &&
  Array.isArray(line['named']) &&
  line['named'].every((name) => isText(name)) &&
  isTable(line['reasons']) &&
  Object.values(line['reasons']).every(Number.isSafeInteger) &&
  ['count', 'sources'].every((key) => Number.isSafeInteger(line[key])) &&
  ['from', 'to'].every((key) => isText(line[key], TIME))

const isReload = (line: Fields): boolean =>
  line['event'] === 'reload' &&
  ['outcome', 'file'].every((key) => isText(line[key])) &&
  ['sha256', 'detail'].every((key) => line[key] === null || isText(line[key]))

const isHttp = (line: Fields): boolean =>
  line['event'] === 'http_refused' &&
  ['code', 'method', 'path'].every((key) => isText(line[key])) &&
  ['host', 'origin', 'remote'].every((key) => line[key] === null || isText(line[key]))

const isAuthority = (line: Fields): boolean =>
  line['event'] === 'authority' &&
  isText(line['operation']) &&
  ['agent', 'machine', 'level', 'code', 'detail'].every((key) => line[key] === null || isText(line[key]))

/** Fields of the lines of a desk: texts, and texts or null. */
const DESK_TEXTS: Readonly<Record<string, readonly [readonly string[], readonly string[]]>> = {
  question: [
    ['question_id', 'permit_sha256', 'door', 'asker', 'engine', 'executable', 'cwd', 'host', 'why'],
    ['session', 'target', 'always_ask'],
  ],
  approval: [
    ['outcome', 'by', 'reason'],
    ['question_id', 'permit_sha256'],
  ],
  store_changed: [['change', 'by', 'detail'], ['agent']],
  desk_refused: [
    ['code', 'detail'],
    ['role', 'name'],
  ],
}

const isOfDesk = (line: Fields): boolean => {
  const [texts, nullable] = DESK_TEXTS[String(line['event'])] ?? []
  if (texts === undefined || nullable === undefined) return false
  return texts.every((key) => isText(line[key])) && nullable.every((key) => line[key] === null || isText(line[key]))
}

const isOfLife = (line: Fields): boolean =>
  LIFE_EVENTS.some((event) => event === line['event']) &&
  isSigner(line['signer']) &&
  (line['event'] === 'began'
    ? isText(line['version']) && isLineRef(line['after'])
    : line['signature'] === null || isText(line['signature']))

/** It has a place in a chain, as every line of every version has. */
const isPlaced = (line: Fields): boolean =>
  isPlace(line['n']) &&
  isText(line['ts'], TIME) &&
  isText(line['prev'], HEX_64) &&
  isText(line['chain']) &&
  isRequestId(String(line['chain']))

const isKnown = (line: Fields): boolean => JOURNAL_EVENTS.some((event) => event === line['event'])

const isLine = (value: unknown): value is JournalLine => {
  if (!isTable(value)) return false
  const line = value
  const text = (key: string, form: RegExp): boolean => isText(line[key], form)
  const isId = (key: string): boolean => typeof line[key] === 'string' && isRequestId(line[key])
  const isOfLocalSession = (): boolean =>
    ['door', 'session_id', 'client_name'].every((key) => typeof line[key] === 'string') &&
    !('agent_id' in line) &&
    (LOCAL_RUN_EVENTS.includes(String(line['event'])) || (line['event'] === 'refused' && 'request_id' in line)
      ? isId('request_id')
      : line['request_id'] === undefined)
  return (
    isKnown(line) &&
    isPlaced(line) &&
    (isOfLife(line) ||
      isCount(line) ||
      isAuthority(line) ||
      isHttp(line) ||
      isReload(line) ||
      isOfDesk(line) ||
      isOfLocalSession() ||
      (text('agent_id', HEX_64) && text('machine_id', HEX_64) && isId('request_id')))
  )
}

const parsed = (bytes: Uint8Array): unknown => {
  try {
    return JSON.parse(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8'))
  } catch {
    return null
  }
}

/** What a line says, or null when it is not a whole line of a journal. */
export const parseLine = (bytes: Uint8Array): JournalLine | null => {
  const value = parsed(bytes)
  return isLine(value) ? value : null
}

/** A line whose event is none of ours: of what it says only the place in its chain is known. */
export interface LaterLine extends Pick<JournalLine, 'chain' | 'n' | 'prev' | 'ts'> {
  readonly event: null
  readonly called: string
}

/** For what `parseLine` does not know: a later version, which wrote this file before we were put in its place, has other events. */
export const parseLaterLine = (bytes: Uint8Array): LaterLine | null => {
  const value = parsed(bytes)
  if (!isTable(value) || !isText(value['event']) || isKnown(value) || !isPlaced(value)) return null
  const { chain, n, prev, ts } = value as unknown as LaterLine
  return { chain, n, prev, ts, event: null, called: String(value['event']) }
}

/**
 * True for the beginning of one line that a crash or a full disk cut off. It takes no place in its
 * chain, so cutting a line short by hand does not pass for one: that leaves a hole.
 */
export const isTorn = (bytes: Uint8Array): boolean => {
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('utf8')
  // Quotes inside a line are escaped: a second beginning means that two lines were joined.
  if (!text.startsWith(BEGINNING.slice(0, text.length)) || text.includes(BEGINNING, 1)) return false
  try {
    JSON.parse(text)
    return false
  } catch {
    return true
  }
}
