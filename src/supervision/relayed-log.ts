import type { Readable } from 'node:stream'
import type { Clock } from '../base/clock.ts'
import { leadsToJournald, withPriority } from '../base/log-level.ts'
import { TokenBucket } from '../base/rate-limit.ts'
import { visibleJson } from '../base/visible-text.ts'
import { LINE_FEED } from '../protocol/lines.ts'

/** Length of a relayed line: a stack trace or an address list fits. */
export const RELAYED_LINE_BYTES = 8 * 1024
/** Lines at once, as at a failing start, and per second afterwards, so that a log stays readable and fills no disk. */
export const RELAYED_LINES_BURST = 200
export const RELAYED_LINES_PER_SECOND = 20
/** Bytes that are read. A process that writes without end is paused. */
export const RELAYED_BYTES = { burst: 2 * 1024 * 1024, perSecond: 256 * 1024 }
/** Duration of a pause. The read of 64 KiB that exceeded the limit is not counted. */
const RELAYED_PAUSE_MS = 1_000

export interface RelayedLogInit {
  /** Name of the process, added to each line. */
  readonly name: string
  readonly pid: number
  readonly write: (line: string) => void
  /** As in `LoggerInit`. */
  readonly journald?: boolean
}

interface Said {
  readonly level?: unknown
  readonly time?: unknown
  readonly [field: string]: unknown
}

const parsed = (text: string): Said => {
  try {
    const value: unknown = JSON.parse(text)
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Said
  } catch {
    // Other lines are the runtime's, such as the stack of a crash.
  }
  return { level: 'error', time: new Date().toISOString(), msg: text }
}

/**
 * Relays the standard error of a process as lines of this log, so that it needs no descriptor of this process: a terminal's could also be
 * read. Each line is JSON, names the process, has at most `RELAYED_LINE_BYTES`, and contains no terminal control characters. Lines above
 * the rate are dropped and counted.
 */
export const relayLog = (stream: Readable, { clock }: { clock: Clock }, init: RelayedLogInit): void => {
  const { name, pid, write, journald = leadsToJournald() } = init
  const rate = new TokenBucket({ clock }, { burst: RELAYED_LINES_BURST, perSecond: RELAYED_LINES_PER_SECOND })
  const bytes = new TokenBucket({ clock }, RELAYED_BYTES)
  let parts: Buffer[] = []
  let kept = 0
  let dropped = 0
  const tell = ({ time, ...fields }: Said): void => {
    const line = `${visibleJson(JSON.stringify({ ...(journald ? {} : { time }), ...fields, name, pid }))}\n`
    write(journald ? withPriority(fields.level, line) : line)
  }
  const keep = (more: Buffer): void => {
    const part = more.subarray(0, RELAYED_LINE_BYTES - kept)
    // A copy, so that a short beginning does not keep its whole chunk in memory.
    if (part.length > 0) parts.push(Buffer.from(part))
    kept += part.length
  }
  const endLine = (): void => {
    if (kept === 0) return
    const text = Buffer.concat(parts).toString('utf8')
    parts = []
    kept = 0
    if (!rate.take()) return void (dropped += 1)
    if (dropped > 0)
      tell({ level: 'warn', time: new Date().toISOString(), dropped, msg: 'lines of this log came too fast and were dropped' })
    dropped = 0
    tell(parsed(text))
  }
  stream.on('data', (chunk: Buffer) => {
    let from = 0
    for (let to = chunk.indexOf(LINE_FEED); to >= 0; to = chunk.indexOf(LINE_FEED, from)) {
      keep(chunk.subarray(from, to))
      endLine()
      from = to + 1
    }
    keep(chunk.subarray(from))
    if (bytes.take(chunk.length)) return
    stream.pause()
    clock.setTimeout(() => void stream.resume(), RELAYED_PAUSE_MS, { unref: true })
  })
  stream.on('end', endLine)
  // The process has ended, which is reported elsewhere.
  stream.on('error', () => undefined)
}
