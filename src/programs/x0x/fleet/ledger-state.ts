import { createHash } from 'node:crypto'
import { visibleJson } from '../../../base/visible-text.ts'
import {
  FANOUT_ENDS,
  type FanoutEventJson,
  type FanoutHostJson,
  type FanoutLedgerJson,
  NO_FACTS,
  asFanoutEvent,
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
export type RequestedHost = Sent<typeof ASKED_HOST>
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

interface HostState extends RequestedHost {
  /** Its command may have been sent. */
  begun: boolean
  end: FanoutHostJson | null
  /** What was known before it was asked again. */
  before: FanoutHostJson | null
}

/** How a host ended that the file says nothing of. */
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

/** Its command certainly did not run: it was refused, not reached, never begun, or taken back before it was sent. */
export const certainlyDidNotRun = ({ end, code, signal }: FanoutHostJson): boolean =>
  end === 'denied' || end === 'unreachable' || end === 'not_started' || (end === 'cancelled' && code === null && signal === null)

/** Whether hosts that ended so are meant. */
const isMeant = (which: LedgerRetry['which'], end: FanoutHostJson): boolean =>
  which === 'unknown' ? end.end === 'unknown' : certainlyDidNotRun(end)

/**
 * Nobody has answered under the id of its last try: should it have begun all the same and nobody have heard of it, it refuses to run the same
 * id twice. What was refused or ended under an id would be refused for that id again.
 */
const keepsId = ({ begun, end }: HostState): boolean =>
  end === null
    ? !begun
    : end.end === 'not_started' || end.end === 'unreachable' || (end.end === 'cancelled' && !end.warnings.includes('cancelled'))

/** What a ledger says, line by line: at any line each host has exactly one end. */
export class LedgerState {
  #head: LedgerHead | null = null
  readonly #hosts = new Map<string, HostState>()
  #isClosed = false

  /** Throws SyntaxError for a line that cannot stand behind those before it. */
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

  /** Throws SyntaxError where the first line did not come, or not all hosts. */
  get head(): LedgerHead {
    if (this.#head === null) throw new SyntaxError('it is empty')
    return this.#head
  }

  /** All hosts are named. */
  get isWhole(): boolean {
    return this.#hosts.size === this.head.asked
  }

  get hosts(): RequestedHost[] {
    return [...this.#hosts.values()].map(({ host, agent_id, request_id }) => ({ host, agent_id, request_id }))
  }

  /** Whom to ask again, each with the id for its run. */
  askedAgain(which: LedgerRetry['which'], newId: () => string): RequestedHost[] {
    return [...this.#hosts.values()]
      .filter((host) => isMeant(which, endOf(host)))
      .map((host) => ({ host: host.host, agent_id: host.agent_id, request_id: keepsId(host) ? host.request_id : newId() }))
  }

  /** How each ended, as far as the file says. */
  ends(): FanoutHostJson[] {
    return [...this.#hosts.values()].map(endOf)
  }

  ledger(): FanoutLedgerJson {
    return sumsOf(this.head.fanout_id, this.ends())
  }

  #addHosts(hosts: readonly RequestedHost[]): void {
    for (const host of hosts) {
      if (this.#hosts.has(host.host)) throw new SyntaxError(`${JSON.stringify(host.host)} stands there twice`)
      this.#hosts.set(host.host, { ...host, begun: false, end: null, before: null })
    }
    if (this.#hosts.size > this.head.asked) throw new SyntaxError('it names more hosts than were asked')
  }

  #of(name: string): HostState {
    const host = this.#hosts.get(name)
    if (host === undefined || !this.isWhole) throw new SyntaxError(`${JSON.stringify(name)} was not asked`)
    if (this.#isClosed) throw new SyntaxError('something follows behind the end')
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
        throw new SyntaxError(`${JSON.stringify(name)} was not to be asked again`)
      this.#hosts.set(name, { ...host, request_id, begun: false, end: null, before })
    }
    this.#isClosed = false
  }

  #close(said: FanoutLedgerJson): void {
    const sums = this.ledger()
    const wrong = FANOUT_ENDS.find((end) => sums[end] !== said[end]) ?? (sums.asked === said.asked ? undefined : 'asked')
    if (wrong !== undefined) throw new SyntaxError(`it does not add up: ${said[wrong]} of ${wrong}, and its lines say ${sums[wrong]}`)
    this.#isClosed = true
  }
}

const endOf = (host: HostState): FanoutHostJson => {
  const { before, begun } = host
  const unheard = begun ? unheardEnd(host, 'unknown', 'it had begun, and nobody was there any more to hear how it ended') : null
  const end = host.end ?? unheard
  if (end === null) return before ?? unheardEnd(host, 'not_started', 'its turn had not come when nobody was there any more')
  // That it certainly did not run this time says nothing of the time before.
  return before?.end === 'unknown' && certainlyDidNotRun(end) ? before : end
}
