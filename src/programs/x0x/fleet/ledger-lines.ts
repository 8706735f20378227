import { createHash } from 'node:crypto'
import { visibleJson } from '../../../base/visible-text.ts'
import { type FanoutEventJson, asFanoutEvent } from '../../../protocol/fanout.ts'
import {
  type FieldTable,
  type Fields,
  type Sent,
  closedProblemOf,
  count,
  isTable,
  list,
  number,
  oneOf,
  orNull,
  record,
  text,
  texts,
} from '../../../protocol/json-table.ts'

/** Of the file. One of a later version is refused as that. */
export const LEDGER_VERSION = 1

/** `request_id`: chosen before anybody was asked; with it a host runs the command once at most, also where it is asked twice. */
const ASKED_HOST = { host: text, agent_id: text, request_id: text }
/** The first line. */
const HEAD = { version: number, fanout_id: text, at: text, argv: texts, stdin_bytes: count, stdin_sha256: orNull(text), asked: count }
const HOSTS = { hosts: list(record(ASKED_HOST)) }
/** From here on these hosts are asked again, and what was known of them holds until they begin. */
const RETRY = { which: oneOf(['certain', 'unknown']), fanout_id: text, at: text, hosts: list(record({ host: text, request_id: text })) }

export type LedgerHead = Sent<typeof HEAD>
export type AskedHost = Sent<typeof ASKED_HOST>
export type LedgerRetry = Sent<typeof RETRY>

/** One line. `begun`, `host` and `ledger` are as the daemon says them. */
export type LedgerRecord =
  | ({ readonly type: 'x0x_ledger' } & LedgerHead)
  | ({ readonly type: 'hosts' } & Sent<typeof HOSTS>)
  | ({ readonly type: 'retry' } & LedgerRetry)
  | Extract<FanoutEventJson, { type: 'begun' | 'host' | 'ledger' }>

const OWN: Readonly<Record<string, FieldTable>> = { x0x_ledger: HEAD, hosts: HOSTS, retry: RETRY }
const OF_DAEMON = ['begun', 'host', 'ledger']

/** The `chain` before the first line. */
const FIRST = '0'.repeat(32)
const CHAINED = /^(.*),"chain":"([0-9a-f]{32})"\}$/s

/** The lines of a ledger: each says by a hash which lines stand before it, so that none can be changed, left out or moved unseen. */
export class LedgerChain {
  #last = FIRST

  /** With its line feed. */
  encode(record: LedgerRecord): string {
    const body = visibleJson(JSON.stringify(record))
    return `${body.slice(0, -1)},"chain":"${this.#next(body)}"}\n`
  }

  /** Throws SyntaxError for what is no line of a ledger or does not stand where it stood. */
  decode(line: string): LedgerRecord {
    const [, members, chain] = CHAINED.exec(line) ?? []
    if (members === undefined) throw new SyntaxError('it is no line of a ledger')
    const body = `${members}}`
    if (this.#next(body) !== chain) throw new SyntaxError('it was altered, or a line before it is missing')
    return asRecord(JSON.parse(body))
  }

  #next(body: string): string {
    this.#last = createHash('sha256').update(`${this.#last}${body}`).digest('hex').slice(0, FIRST.length)
    return this.#last
  }
}

const asRecord = (value: unknown): LedgerRecord => {
  const { type, ...fields }: Fields = isTable(value) ? value : {}
  const name = typeof type === 'string' ? type : ''
  if (OF_DAEMON.includes(name)) return asFanoutEvent(value) as LedgerRecord
  const checks = Object.hasOwn(OWN, name) ? OWN[name]! : null
  if (checks === null) throw new SyntaxError('it is no line of a ledger that this release knows')
  if (name === 'x0x_ledger' && typeof fields['version'] === 'number' && fields['version'] > LEDGER_VERSION)
    throw new SyntaxError('a later release has written it')
  const problem = closedProblemOf(fields, checks)
  if (problem !== null) throw new SyntaxError(problem)
  return value as LedgerRecord
}
