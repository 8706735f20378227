import { AppError } from '../base/errors.ts'
import { oneOf } from './closed-fields.ts'
import {
  count,
  eventReader,
  exitStatus,
  flag,
  id,
  listOf,
  name,
  orMissing,
  orNull,
  signalNumber,
  tableOf,
  text,
  type Checked,
} from './field-checks.ts'
import { linesOf } from './lines.ts'
import type { DenialReason, WarningKind } from './reasons.ts'
import { lineTooLong, MAX_RUN_LINE, STARTED, WAITING, WARNING, type Told } from './run-events.ts'

/** What became of one host: exactly one of these. */
export const FANOUT_ENDS = ['ran', 'denied', 'unreachable', 'not_started', 'cancelled', 'unknown'] as const
export type FanoutEnd = (typeof FANOUT_ENDS)[number]

/** Why a host's turn never came: the `error` of one that ended as `not_started`. */
export const NOT_STARTED_REASONS = [
  'canary_failed',
  'max_failures_reached',
  'deadline_over',
  'caller_left',
  'fanout_cancelled',
  'shutting_down',
] as const
export type NotStartedReason = (typeof NOT_STARTED_REASONS)[number]

/** `host`: the contact's name, else the agent's id. */
const HOST = { host: text, agent_id: id }

const ENDED = {
  ...HOST,
  machine_id: orNull(id),
  /** Null: it had no turn. */
  request_id: orNull(id),
  end: oneOf(FANOUT_ENDS),
  code: orNull(exitStatus),
  signal: orNull(signalNumber),
  denial_reason: orNull(name<DenialReason>()),
  /** A code of the error table, of one that never began a `NotStartedReason`; null where there is no error. */
  error: orNull(name()),
  duration_ms: orNull(count),
  stdout_bytes_total: count,
  stderr_bytes_total: count,
  truncated: flag,
  /** Of `ran`: it ended as it says, but bytes of its output are missing. */
  incomplete: flag,
  warnings: listOf(name<WarningKind>()),
}
const ENDED_MAYBE = { waited_ms: orMissing(count), message: orMissing(text), next: orMissing(text) }

/** How one host ended. `waited_ms`: for an approval. `message`: what more there is to say, for a human; `next`: what to do next. */
export type FanoutHostJson = Checked<typeof ENDED> & { waited_ms?: number; message?: string; next?: string }

/** Of a host of which no more is known than its end. */
export const NO_FACTS = {
  machine_id: null,
  code: null,
  signal: null,
  denial_reason: null,
  error: null,
  duration_ms: null,
  stdout_bytes_total: 0,
  stderr_bytes_total: 0,
  truncated: false,
  incomplete: false,
  warnings: [],
} satisfies Omit<FanoutHostJson, 'host' | 'agent_id' | 'request_id' | 'end'>

const SUMS = { ran: count, denied: count, unreachable: count, not_started: count, cancelled: count, unknown: count }
const LEDGER = {
  fanout_id: id,
  /** Each of them ran and ended with code 0, and all of its output came. */
  ok: flag,
  asked: count,
  ...SUMS,
  /** Of those that ran: a code that is not 0, a signal, or output that is missing or that a cap cut. */
  failed: count,
}

/** The sums of a fan-out: the six ends add up to `asked`. */
export type FanoutLedgerJson = Checked<typeof LEDGER>

const ASKED = { fanout_id: id, hosts: listOf(tableOf(HOST)) }
const BEGUN = { host: text, request_id: id }
const OUTPUT = { host: text, request_id: id, seq: count, data_b64: text }
const FAILED = { fanout_id: orNull(id), error: name(), message: text }

type Of<T extends string, C> = { readonly type: T } & Checked<C>

/**
 * One line of the streamed answer of `POST /exec/fanout` (NDJSON or SSE data). `fanout` comes first, once or, with `more`,
 * in several; `host` once for each host; `ledger` last. `error` instead of it: the fan-out broke off, and nothing is known of the hosts without a `host`.
 */
export type FanoutEventJson =
  | (Of<'fanout', typeof ASKED> & { readonly more?: true })
  | Of<'begun', typeof BEGUN>
  | Of<'started', typeof STARTED & { host: typeof text }>
  | Of<'waiting_for_approval', typeof WAITING & { host: typeof text }>
  | Of<'stdout' | 'stderr', typeof OUTPUT>
  | Of<'warning', typeof WARNING & { host: typeof text }>
  | ({ readonly type: 'host' } & FanoutHostJson)
  | ({ readonly type: 'ledger' } & FanoutLedgerJson)
  | (Of<'error', typeof FAILED> & Told)

/** A host as the answer in one object has it: what it wrote stands beside how it ended, as far as it fitted. */
export type FanoutHostResultJson = FanoutHostJson & { stdout_b64: string; stderr_b64: string }

/** What `POST /exec/fanout` answers where nothing is streamed. */
export type FanoutResultJson = FanoutLedgerJson & { hosts: FanoutHostResultJson[] }

/** Throws SyntaxError for what is no event; what else an event has is not looked at. */
export const asFanoutEvent = eventReader<FanoutEventJson>('a fan-out', {
  fanout: { ...ASKED, more: orMissing(flag) },
  begun: BEGUN,
  started: { ...STARTED, host: text },
  waiting_for_approval: { ...WAITING, host: text },
  stdout: OUTPUT,
  stderr: OUTPUT,
  warning: { ...WARNING, host: text },
  host: { ...ENDED, ...ENDED_MAYBE },
  ledger: LEDGER,
  error: FAILED,
})

/** The events of a streamed answer in NDJSON, however its chunks are cut. Throws SyntaxError, or RangeError for a line without end. */
export async function* fanoutEventsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<FanoutEventJson, void, undefined> {
  for await (const line of linesOf(chunks, MAX_RUN_LINE, lineTooLong)) yield asFanoutEvent(JSON.parse(Buffer.from(line).toString('utf8')))
}

type Ended = Pick<FanoutHostJson, 'end' | 'code' | 'incomplete' | 'truncated'>

/** It ran, ended with code 0, and all of its output came. */
export const isSuccess = ({ end, code, incomplete, truncated }: Ended): boolean => end === 'ran' && code === 0 && !incomplete && !truncated

/** How many ended how. */
export class FanoutSums {
  readonly #ends: Record<FanoutEnd, number> = { ran: 0, denied: 0, unreachable: 0, not_started: 0, cancelled: 0, unknown: 0 }
  #succeeded = 0

  add(host: Ended): void {
    this.#ends[host.end] += 1
    if (isSuccess(host)) this.#succeeded += 1
  }

  /** Of those that ran. */
  get failed(): number {
    return this.#ends.ran - this.#succeeded
  }

  /** How many have ended. */
  get ended(): number {
    return Object.values(this.#ends).reduce((sum, ends) => sum + ends, 0)
  }

  /** Had their turn and did not succeed, whatever else became of them: what `max_failures` counts. */
  get unsuccessful(): number {
    return this.ended - this.#succeeded - this.#ends.not_started
  }

  /** `asked`: hosts of the fan-out. Add up only when all have ended. */
  ledger(fanout_id: string, asked: number): FanoutLedgerJson {
    return { fanout_id, ok: asked > 0 && this.#succeeded === asked, asked, ...this.#ends, failed: this.failed }
  }
}

/** The same of hosts that have all ended. */
export const sumsOf = (fanout_id: string, hosts: Iterable<Ended>): FanoutLedgerJson => {
  const sums = new FanoutSums()
  for (const host of hosts) sums.add(host)
  return sums.ledger(fanout_id, sums.ended)
}

/** What is wrong with a ledger that somebody else wrote, or null: its ends do not add up, or it says `ok` of what is not. */
export const ledgerProblem = (ledger: FanoutLedgerJson): string | null => {
  const { asked, ran, failed, ok } = ledger
  const sum = FANOUT_ENDS.reduce((total, end) => total + ledger[end], 0)
  if (sum !== asked) return `${sum} hosts ended and ${asked} were asked`
  if (failed > ran) return `${failed} failed and ${ran} ran`
  return ok === (asked > 0 && ran === asked && failed === 0) ? null : `it says ok ${ok}`
}

/** A part of the hosts, such as `5%`. */
export const PERCENTAGE = /^([1-9][0-9]?|100)%$/

/**
 * After how many failures of `hosts` nothing more begins. A part of a host counts as one, and no percentage of anything is none.
 * Throws `bad_request` where `limit` is neither a count from 1 nor a percentage.
 */
export const failuresAllowed = (limit: number | string, hosts: number): number => {
  if (typeof limit === 'number' && Number.isSafeInteger(limit) && limit >= 1) return limit
  const percent = typeof limit === 'string' ? PERCENTAGE.exec(limit)?.[1] : undefined
  if (percent === undefined)
    throw new AppError('bad_request', `max_failures: a whole number from 1, or "1%" to "100%", not ${JSON.stringify(limit)}`)
  return Math.max(1, Math.ceil((hosts * Number(percent)) / 100))
}
