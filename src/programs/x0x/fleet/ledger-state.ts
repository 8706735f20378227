import { createHash } from 'node:crypto'
import { visibleJson } from '../../../base/visible-text.ts'
import {
  FANOUT_ENDS,
  type FanoutEventJson,
  type FanoutHostJson,
  type FanoutLedgerJson,
  NO_FACTS,
  asFanoutEvent,
  isSuccess,
  sumsOf,
} from '../../../protocol/api/fanout.ts'
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

/** Version of the file. Later versions are refused. */
export const LEDGER_VERSION = 1

/** `request_id` is chosen before the host is asked. A host runs an ID at most once, even if asked twice. */
const ASKED_HOST = { host: text, agent_id: text, request_id: text }
/** The first line. */
const HEAD = { version: number, fanout_id: text, at: text, argv: texts, stdin_bytes: count, stdin_sha256: orNull(text), asked: count }
const HOSTS = { hosts: list(record(ASKED_HOST)) }
/** These hosts are asked again from here on. Their earlier ends hold until they start. */
const RETRY = {
  which: oneOf(['certain', 'unknown', 'unsuccessful']),
  fanout_id: text,
  at: text,
  hosts: list(record({ host: text, request_id: text })),
}

export type LedgerHead = Sent<typeof HEAD>
export type RequestedHost = Sent<typeof ASKED_HOST>
export type LedgerRetry = Sent<typeof RETRY>

/** A line. `begun`, `host` and `ledger` are the daemon's events. */
export type LedgerRecord =
  | ({ readonly type: 'x0x_ledger' } & LedgerHead)
  | ({ readonly type: 'hosts' } & Sent<typeof HOSTS>)
  | ({ readonly type: 'retry' } & LedgerRetry)
  | Extract<FanoutEventJson, { type: 'begun' | 'host' | 'ledger' }>

const OWN: Readonly<Record<string, FieldTable>> = { x0x_ledger: HEAD, hosts: HOSTS, retry: RETRY }
const OF_DAEMON = ['begun', 'host', 'ledger']

/** First word of the command in a ledger of `x0x cp`. No target runs it as a command. */
export const COPY_WORD = '@cp'

export const isCopyCommand = ([word]: readonly string[]): boolean => word === COPY_WORD

/** The `chain` before the first line. */
const FIRST = '0'.repeat(32)
const CHAINED = /^(.*),"chain":"([0-9a-f]{32})"\}$/s

/** Hash-chains the lines of a ledger, so that none can be changed, removed or moved unnoticed. */
export class LedgerChain {
  #last = FIRST

  /** The line with its line feed. */
  encode(record: LedgerRecord): string {
    const body = visibleJson(JSON.stringify(record))
    return `${body.slice(0, -1)},"chain":"${this.#next(body)}"}\n`
  }

  /** Throws SyntaxError for an invalid or displaced line. */
  decode(line: string): LedgerRecord {
    const [, members, chain] = CHAINED.exec(line) ?? []
    if (members === undefined) throw new SyntaxError('it is not a line of a ledger')
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
  if (checks === null) throw new SyntaxError('this release does not know this line of a ledger')
  if (name === 'x0x_ledger' && typeof fields['version'] === 'number' && fields['version'] > LEDGER_VERSION)
    throw new SyntaxError('a later release has written it')
  const problem = closedProblemOf(fields, checks)
  if (problem !== null) throw new SyntaxError(problem)
  return value as LedgerRecord
}

interface HostState extends RequestedHost {
  /** Whether its command may have been sent. */
  begun: boolean
  end: FanoutHostJson | null
  /** Its end before it was asked again. */
  before: FanoutHostJson | null
}

/** The end of a host without a recorded one. */
export const unheardEnd = (
  { host, agent_id, request_id }: RequestedHost,
  end: 'unknown' | 'not_started',
  message: string,
): FanoutHostJson => ({
  ...NO_FACTS,
  host,
  agent_id,
  request_id: end === 'unknown' ? request_id : null,
  end,
  error: end === 'unknown' ? null : 'caller_left',
  message,
})

/** Whether the command certainly did not run: it was denied, not reached, never started, or cancelled before it was sent. */
export const certainlyDidNotRun = ({ end, code, signal }: FanoutHostJson): boolean =>
  end === 'denied' || end === 'unreachable' || end === 'not_started' || (end === 'cancelled' && code === null && signal === null)

const isMeant = (which: LedgerRetry['which'], end: FanoutHostJson): boolean => {
  // Only a copy is repeated after a failure, because it can do no harm twice.
  if (which === 'unsuccessful') return !isSuccess(end)
  return which === 'unknown' ? end.end === 'unknown' : certainlyDidNotRun(end)
}

/**
 * Whether the ID of the last attempt is used again. If no host has answered under it, a host that did start it unnoticed refuses to run it
 * twice. An ID that was denied or has ended would be refused again, so it is replaced.
 */
const keepsId = ({ begun, end }: HostState): boolean =>
  end === null
    ? !begun
    : end.end === 'not_started' || end.end === 'unreachable' || (end.end === 'cancelled' && !end.warnings.includes('cancelled'))

/** The state of a ledger after each line. Each host always has exactly one end. */
export class LedgerState {
  #head: LedgerHead | null = null
  readonly #hosts = new Map<string, HostState>()
  #isClosed = false

  /** Throws SyntaxError for a line that cannot follow the earlier ones. */
  add(record: LedgerRecord): void {
    if ((this.#head === null) !== (record.type === 'x0x_ledger')) throw new SyntaxError('the first line, and no other, is that of a ledger')
    switch (record.type) {
      case 'x0x_ledger':
        this.#head = record
        return
      case 'hosts':
        return this.#addHosts(record.hosts)
      case 'begun':
        return this.#start(this.#of(record.host))
      case 'host':
        return this.#end(this.#of(record.host), record)
      case 'retry':
        return this.#retry(record)
      case 'ledger':
        return this.#close(record)
    }
  }

  /** Throws SyntaxError before the first line and all hosts have been read. */
  get head(): LedgerHead {
    if (this.#head === null) throw new SyntaxError('it is empty')
    return this.#head
  }

  get isWhole(): boolean {
    return this.#hosts.size === this.head.asked
  }

  get hosts(): RequestedHost[] {
    return [...this.#hosts.values()].map(({ host, agent_id, request_id }) => ({ host, agent_id, request_id }))
  }

  askedAgain(which: LedgerRetry['which'], newId: () => string): RequestedHost[] {
    return [...this.#hosts.values()]
      .filter((host) => isMeant(which, endOf(host)))
      .map((host) => ({ host: host.host, agent_id: host.agent_id, request_id: keepsId(host) ? host.request_id : newId() }))
  }

  /** The end of each host, as far as recorded. */
  ends(): FanoutHostJson[] {
    return [...this.#hosts.values()].map(endOf)
  }

  ledger(): FanoutLedgerJson {
    return sumsOf(this.head.fanout_id, this.ends())
  }

  #addHosts(hosts: readonly RequestedHost[]): void {
    for (const host of hosts) {
      if (this.#hosts.has(host.host)) throw new SyntaxError(`${JSON.stringify(host.host)} is listed twice`)
      this.#hosts.set(host.host, { ...host, begun: false, end: null, before: null })
    }
    if (this.#hosts.size > this.head.asked) throw new SyntaxError('it has more hosts than the command line')
  }

  #of(name: string): HostState {
    const host = this.#hosts.get(name)
    if (host === undefined || !this.isWhole) throw new SyntaxError(`${JSON.stringify(name)} was not asked`)
    if (this.#isClosed) throw new SyntaxError('lines follow after the end')
    return host
  }

  #start(host: HostState): void {
    if (host.begun || host.end !== null) throw new SyntaxError(`${JSON.stringify(host.host)} begins twice`)
    host.begun = true
  }

  #end(host: HostState, { type: _type, ...end }: FanoutHostJson & { readonly type: 'host' }): void {
    if (host.end !== null) throw new SyntaxError(`${JSON.stringify(host.host)} ends twice`)
    if (end.agent_id !== host.agent_id) throw new SyntaxError(`${JSON.stringify(host.host)} is another agent`)
    host.end = end
  }

  #retry({ which, hosts }: LedgerRetry): void {
    for (const { host: name, request_id } of hosts) {
      const host = this.#hosts.get(name)
      const before = host === undefined ? null : endOf(host)
      if (host === undefined || before === null || !isMeant(which, before))
        throw new SyntaxError(`${JSON.stringify(name)} was not one to retry`)
      this.#hosts.set(name, { ...host, request_id, begun: false, end: null, before })
    }
    this.#isClosed = false
  }

  #close(said: FanoutLedgerJson): void {
    const sums = this.ledger()
    const wrong = FANOUT_ENDS.find((end) => sums[end] !== said[end]) ?? (sums.asked === said.asked ? undefined : 'asked')
    if (wrong !== undefined) throw new SyntaxError(`its counts differ: ${wrong} is ${said[wrong]}, and its lines have ${sums[wrong]}`)
    this.#isClosed = true
  }
}

const endOf = (host: HostState): FanoutHostJson => {
  const { before, begun } = host
  const unheard = begun ? unheardEnd(host, 'unknown', 'it had started, and x0x stopped before its result arrived') : null
  const end = host.end ?? unheard
  if (end === null) return before ?? unheardEnd(host, 'not_started', 'x0x stopped before its turn')
  // If it certainly did not run this time, that says nothing about the time before.
  return before?.end === 'unknown' && certainlyDidNotRun(end) ? before : end
}
