import { hostname } from 'node:os'
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
