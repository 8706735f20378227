import { hostname } from 'node:os'
import type { Clock } from '../base/clock.ts'
import type { Logger } from '../base/log.ts'
import { visibleJson } from '../base/visible-text.ts'
import type { JournalEvent } from './events.ts'

/** Of security, which readers of the machine's other logs may not see: `authpriv` (RFC 5424 §6.2.1). */
const FACILITY = 10
const [WARNING, NOTICE, INFORMATIONAL] = [4, 5, 6]

/** Of events that are no mere course of things. */
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

/** With the number that RFC 5612 gives to who has none of his own. */
const ELEMENT = 'x0x@32473'
/** Of one value, and of a message: receivers take 8 KiB as they come (RFC 5424 §6.1, rsyslog). */
const MAX_VALUE = 1_024
const MAX_MESSAGE = 8_192

/** Signatures over what stands before, of some kilobytes: evidence of the file itself. */
const LEFT_OUT: ReadonlySet<string> = new Set<JournalEvent['event']>(['head'])

const HOST =
  hostname()
    .replaceAll(/[^!-~]/g, '-')
    .slice(0, 255) || '-'

/** Visible, on one line, and as a parameter's value must be (§6.3.3). */
const valueOf = (value: unknown): string => {
  const json = visibleJson(JSON.stringify(value))
  const text = typeof value === 'string' ? json.slice(1, -1) : json
  const short = text.length > MAX_VALUE ? `${text.slice(0, MAX_VALUE)}…` : text
  return short.replaceAll(/[\\"\]]/g, String.raw`\$&`)
}

/** A line of the journal as RFC 5424 has it, every field a parameter; null: it is not for syslog. */
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

/** How often what was lost is told again. */
export const LOSS_TOLD_MS = 60_000

/** Sends datagrams to one socket and waits for nobody. */
export interface DatagramSender {
  /** False: there is no room, and it is not sent. */
  send(message: string): boolean
}

export interface SyslogCopyComponents {
  readonly clock: Clock
  readonly log: Logger
  readonly sender: DatagramSender
  /** Counts messages that nobody got. */
  readonly counted: (lost: number) => void
}

/** Gives syslog a copy of each line that is in the journal. It holds up neither the journal nor a run: what cannot be sent is lost, counted and told. */
export class SyslogCopy {
  readonly #components: SyslogCopyComponents
  readonly #path: string
  #untold = 0
  #toldAt = -Infinity

  constructor(components: SyslogCopyComponents, init: { readonly path: string }) {
    this.#components = components
    this.#path = init.path
  }

  /** A line as it stands in the file, without its line feed. */
  readonly take = (line: Uint8Array): void => {
    const message = syslogMessage(line, 'x0xd')
    if (message !== null && !this.#components.sender.send(message)) this.lost(1, 'it is behind, or gone')
  }

  /** So many reached nobody. */
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
