import { AppError } from '../../base/errors.ts'
import { base64, denialReason, exitStatus, hexId, requestId, signalNumber, warningKind } from '../api-fields.ts'
import {
  type EventOf,
  type Sent,
  count,
  eventReader,
  flag,
  list,
  nameOf,
  oneOf,
  optional,
  orNull,
  record,
  text,
  yes,
} from '../json-table.ts'
import { linesOf } from '../lines.ts'
import { ERROR_TOLD, MAX_RUN_LINE, STARTED, WAITING, WARNING, lineTooLong } from './run-events.ts'

/** Results of one host. */
export const FANOUT_ENDS = ['ran', 'denied', 'unreachable', 'not_started', 'cancelled', 'unknown'] as const
export type FanoutEnd = (typeof FANOUT_ENDS)[number]

/** Values of `error` of a host with the result `not_started`. */
export const NOT_STARTED_REASONS = [
  'canary_failed',
  'max_failures_reached',
  'deadline_over',
  'caller_left',
  'fanout_cancelled',
  'shutting_down',
] as const
export type NotStartedReason = (typeof NOT_STARTED_REASONS)[number]

const HOST = { host: text.says('name of the contact, or the agent ID') }

const HOST_ENDED = {
  ...HOST,
  agent_id: hexId,
  machine_id: orNull(hexId),
  request_id: orNull(requestId).says('null if the host was not started'),
  end: oneOf(FANOUT_ENDS),
  code: orNull(exitStatus),
  signal: orNull(signalNumber),
  denial_reason: orNull(denialReason),
  error: orNull(nameOf()).says('an error code; for not_started, the reason'),
  duration_ms: orNull(count),
  stdout_bytes_total: count,
  stderr_bytes_total: count,
  truncated: flag,
  incomplete: flag.says('the command ran, but bytes of its output are missing'),
  warnings: list(warningKind),
  waited_ms: optional(count),
  message: optional(text),
  next: optional(text).says('what to do next'),
}
export type FanoutHostJson = Sent<typeof HOST_ENDED>

/** Facts of a host if only the result is known. */
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

/** Sums of a fan-out. */
const LEDGER = {
  fanout_id: requestId,
  ok: flag.says('the command ended with code 0 on every host, and all output is complete'),
  asked: count.says('number of hosts; the sum of the next six counts'),
  ran: count,
  denied: count,
  unreachable: count,
  not_started: count,
  cancelled: count,
  unknown: count.says('hosts where the command may have run'),
  failed: count.says('hosts in ran with a code other than 0, a signal, or missing or truncated output'),
}
export type FanoutLedgerJson = Sent<typeof LEDGER>

const OUTPUT = { request_id: requestId, seq: count, data_b64: base64, ...HOST }

/**
 * Lines of the streamed response of `POST /exec/fanout` (NDJSON or SSE data). `fanout` comes first, in several parts with `more`. `host`
 * comes once for each host, and `ledger` last. If the fan-out was aborted, `error` replaces `ledger`, and hosts without `host` are unknown.
 */
export const FANOUT_EVENTS = {
  fanout: {
    fanout_id: requestId,
    hosts: list(record({ ...HOST, agent_id: hexId })),
    more: optional(yes).says('another line of this type follows'),
  },
  begun: { ...HOST, request_id: requestId },
  started: { ...STARTED, ...HOST },
  waiting_for_approval: { ...WAITING, ...HOST },
  stdout: OUTPUT,
  stderr: OUTPUT,
  warning: { ...WARNING, ...HOST },
  host: HOST_ENDED,
  ledger: LEDGER,
  error: { fanout_id: orNull(requestId), ...ERROR_TOLD },
}
export type FanoutEventJson = EventOf<typeof FANOUT_EVENTS>

/** A host in the response as one object, with as much of its output as fits. */
const HOST_RESULT = { ...HOST_ENDED, stdout_b64: base64, stderr_b64: base64 }
export type FanoutHostResultJson = Sent<typeof HOST_RESULT>

/** Response of `POST /exec/fanout` without streaming. */
export const FANOUT_RESULT = { ...LEDGER, hosts: list(record(HOST_RESULT)) }
export type FanoutResultJson = Sent<typeof FANOUT_RESULT>

/** Throws SyntaxError for a line that does not have an event. Does not check further fields of an event. */
export const asFanoutEvent = eventReader('a fan-out', FANOUT_EVENTS)

/** The events of a streamed NDJSON response. Throws SyntaxError, or RangeError for an over-long line. */
export async function* fanoutEventsOf(chunks: AsyncIterable<Uint8Array>): AsyncGenerator<FanoutEventJson, void, undefined> {
  for await (const line of linesOf(chunks, MAX_RUN_LINE, lineTooLong)) yield asFanoutEvent(JSON.parse(Buffer.from(line).toString('utf8')))
}

type Ended = Pick<FanoutHostJson, 'end' | 'code' | 'incomplete' | 'truncated'>

/** True if the command ran, ended with code 0, and all of its output arrived. */
export const isSuccess = ({ end, code, incomplete, truncated }: Ended): boolean => end === 'ran' && code === 0 && !incomplete && !truncated

/** Counts hosts by result. */
export class FanoutSums {
  readonly #ends: Record<FanoutEnd, number> = { ran: 0, denied: 0, unreachable: 0, not_started: 0, cancelled: 0, unknown: 0 }
  #succeeded = 0

  add(host: Ended): void {
    this.#ends[host.end] += 1
    if (isSuccess(host)) this.#succeeded += 1
  }

  /** Number of hosts whose command failed. */
  get failed(): number {
    return this.#ends.ran - this.#succeeded
  }

  /** Number of hosts with a result. */
  get ended(): number {
    return Object.values(this.#ends).reduce((sum, ends) => sum + ends, 0)
  }

  /** Number of hosts that started and did not succeed. `max_failures` limits it. */
  get unsuccessful(): number {
    return this.ended - this.#succeeded - this.#ends.not_started
  }

  /** `asked` is the number of hosts. The sums are complete only when all have a result. */
  ledger(fanout_id: string, asked: number): FanoutLedgerJson {
    return { fanout_id, ok: asked > 0 && this.#succeeded === asked, asked, ...this.#ends, failed: this.failed }
  }
}

/** The sums of hosts that all have a result. */
export const sumsOf = (fanout_id: string, hosts: Iterable<Ended>): FanoutLedgerJson => {
  const sums = new FanoutSums()
  for (const host of hosts) sums.add(host)
  return sums.ledger(fanout_id, sums.ended)
}

/** Checks a ledger from another program. Its sums must match, and `ok` must be true only for success. Null if it is valid. */
export const ledgerProblem = (ledger: FanoutLedgerJson): string | null => {
  const { asked, ran, failed, ok } = ledger
  const sum = FANOUT_ENDS.reduce((total, end) => total + ledger[end], 0)
  if (sum !== asked) return `${sum} hosts ended, but ${asked} were requested`
  if (failed > ran) return `${failed} hosts failed, but only ${ran} ran`
  return ok === (asked > 0 && ran === asked && failed === 0) ? null : `ok is ${ok}, which does not match the counts`
}

/** A percentage of the hosts, such as `5%`. */
export const PERCENTAGE = /^([1-9][0-9]?|100)%$/

/** Number of failures after which no further host starts. A percentage is rounded up. Throws `bad_request` for an invalid limit. */
export const failuresAllowed = (limit: number | string, hosts: number): number => {
  if (typeof limit === 'number' && Number.isSafeInteger(limit) && limit >= 1) return limit
  const percent = typeof limit === 'string' ? PERCENTAGE.exec(limit)?.[1] : undefined
  if (percent === undefined)
    throw new AppError('bad_request', `max_failures: expected a whole number from 1, or "1%" to "100%", not ${JSON.stringify(limit)}`)
  return Math.max(1, Math.ceil((hosts * Number(percent)) / 100))
}
