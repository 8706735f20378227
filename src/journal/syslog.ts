import { hostname } from 'node:os'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { visibleJson } from '../base/visible-text.ts'
import type { JournalEvent } from './events.ts'

/** `authpriv` (RFC 5424 §6.2.1), for security messages, which readers of other logs may not see. */
const FACILITY = 10
const [WARNING, NOTICE, INFORMATIONAL] = [4, 5, 6]

/** Severities of unusual events. */
const SEVERITIES: Readonly<Partial<Record<JournalEvent['event'], number>>> = {
  denial: WARNING,
  lost: WARNING,
  refused: WARNING,
  http_refused: WARNING,
  desk_refused: WARNING,
  refusals_suppressed: WARNING,
  warning: NOTICE,
  authority: NOTICE,
  reload: NOTICE,
  approval: NOTICE,
  store_changed: NOTICE,
}

/** With the number that RFC 5612 reserves for examples. */
const ELEMENT = 'x0x@32473'
/** Maximum length of one value, and of a message. Receivers accept 8 KiB by default (RFC 5424 §6.1, rsyslog). */
const MAX_VALUE = 1_024
const MAX_MESSAGE = 8_192

/** Signatures of some kilobytes, which are evidence of the file itself. */
const LEFT_OUT: ReadonlySet<string> = new Set<JournalEvent['event']>(['head'])

const HOST =
  hostname()
    .replaceAll(/[^!-~]/g, '-')
    .slice(0, 255) || '-'

/** Visible, on one line, and escaped as a parameter's value (§6.3.3). */
const valueOf = (value: unknown): string => {
  const json = visibleJson(JSON.stringify(value))
  const text = typeof value === 'string' ? json.slice(1, -1) : json
  const short = text.length > MAX_VALUE ? `${text.slice(0, MAX_VALUE)}…` : text
  return short.replaceAll(/[\\"\]]/g, String.raw`\$&`)
}

/** A line of the journal in the form of RFC 5424, with each field as a parameter, or null if it is not for syslog. */
export const syslogMessage = (line: Uint8Array, appName: string): string | null => {
  const { ts, event, prev: _prev, ...fields } = JSON.parse(Buffer.from(line).toString()) as Record<string, unknown>
  const name = String(event)
  if (LEFT_OUT.has(name)) return null
  const severity = SEVERITIES[name as JournalEvent['event']] ?? INFORMATIONAL
  const head = `<${FACILITY * 8 + severity}>1 ${String(ts)} ${HOST} ${appName} ${process.pid} ${name} [${ELEMENT}`
  let size = Buffer.byteLength(head) + 2 * MAX_VALUE
  const parameters = Object.entries(fields).flatMap(([key, value]) => {
    if (value === null) return []
    const parameter = ` ${key}="${valueOf(value)}"`
    size += Buffer.byteLength(parameter)
    return size > MAX_MESSAGE ? [] : [parameter]
  })
  const about = fields['request_id'] ?? fields['question_id'] ?? fields['operation'] ?? ''
  return `${head}${parameters.join('')}] ${`${name} ${String(about)}`.trimEnd()}`
}

/** Interval of messages about lost lines. */
export const LOSS_TOLD_MS = 60_000

/** Sends datagrams to one socket without waiting. */
export interface DatagramSender {
  /** Returns false, without sending the message, if the queue is full. */
  send(message: string): boolean
}

export interface SyslogCopyComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly sender: DatagramSender
  /** Counts undelivered messages. */
  readonly counted: (lost: number) => void
}

/** Copies each journal line to syslog without delaying the journal or a run. Lines that cannot be sent are dropped, counted and logged. */
export class SyslogCopy {
  readonly #components: SyslogCopyComponents
  readonly #path: string
  #untold = 0
  #toldAt = -Infinity

  constructor(components: SyslogCopyComponents, init: { readonly path: string }) {
    this.#components = components
    this.#path = init.path
  }

  /** A line without its line feed. */
  readonly take = (line: Uint8Array): void => {
    const message = syslogMessage(line, 'x0xd')
    if (message !== null && !this.#components.sender.send(message)) this.lost(1, 'it is too slow, or has ended')
  }

  /** Counts lost lines, and logs them from time to time. */
  lost(count: number, why: string): void {
    const { clock, counted, log } = this.#components
    counted(count)
    this.#untold += count
    if (this.#untold === 0) return
    const now = clock.monotonic()
    if (now - this.#toldAt < LOSS_TOLD_MS) return
    log.warn({ path: this.#path, lost: this.#untold, why }, 'lines of the journal did not reach syslog; the journal has them')
    this.#toldAt = now
    this.#untold = 0
  }
}
