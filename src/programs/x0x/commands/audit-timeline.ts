import { counted } from '../../../base/counted.ts'
import { signalName } from '../../../base/signal-name.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { durationText } from '../../../doors/console/entry-text.ts'
import { parseLine } from '../../../journal/parse-line.ts'
import { tailJournal } from '../../../journal/tail.ts'
import { Timeline, type TimelineEntry } from '../../../journal/timeline.ts'
import type { ContactsAnswer } from '../../../protocol/api-answers.ts'
import { shortId } from '../../../protocol/ids.ts'
import { write } from '../../../supervision/program-output.ts'
import type { CliContext } from '../context.ts'
import { type Drawing, drawingFor, widestOf } from '../drawing.ts'
import { usageError } from '../failure.ts'
import { type Paint, printAnswer } from '../print.ts'
import { runningJournal } from './audit.ts'

/** Lines of a journal that are read, from its end: a run has three, and a look takes no second. */
const MAX_READ_LINES = 10_000
/** More rows are no picture. */
const MAX_ROWS = 500

const timesOf = ({ began_at, ended_at }: TimelineEntry): number[] => [began_at, ended_at ?? began_at].map(Date.parse)
const shortTime = (ms: number): string => (ms < 1_000 ? `${ms} ms` : durationText(ms))

const outcomeOf = (entry: TimelineEntry): string => {
  const { end } = entry
  const [began = 0, ended = 0] = timesOf(entry)
  const took = shortTime(Math.max(0, ended - began))
  if (end === null) return 'no end yet'
  if (end === 'lost') return 'lost'
  if ('refused' in end) return end.refused
  return `${end.signal === null ? `exit ${end.code}` : (signalName(end.signal) ?? `signal ${end.signal}`)}, ${took}`
}

const colourOf = ({ end }: TimelineEntry): Parameters<Paint>[0] => {
  if (end === null) return 'cyan'
  if (end === 'lost' || 'refused' in end) return 'red'
  return end.code === 0 ? 'green' : 'yellow'
}

interface Axis {
  readonly from: number
  readonly to: number
  readonly columns: number
}

const barOf = (entry: TimelineEntry, { from, to, columns }: Axis, { glyphs, paint }: Drawing): string => {
  const [began = from, ended = from] = timesOf(entry)
  const at = (ms: number): number => Math.min(columns - 1, Math.max(0, Math.floor(((ms - from) / Math.max(1, to - from)) * columns)))
  const first = at(began)
  const last = entry.end === null ? columns - 1 : Math.max(first, at(ended))
  const isRefused = entry.end !== null && entry.end !== 'lost' && 'refused' in entry.end
  const long = glyphs.bar.repeat(last - first)
  const end = isRefused ? glyphs.denied : entry.end === null ? glyphs.open : last === first ? glyphs.short : glyphs.bar
  return `${' '.repeat(first)}${paint(colourOf(entry), `${long}${end}`)}${' '.repeat(columns - 1 - last)}`
}

/** Of a day, or with the day where there are more. */
const clock = (ms: number, whole: boolean): string =>
  new Date(ms)
    .toISOString()
    .slice(whole ? 0 : 11, 19)
    .replace('T', ' ')

const axisOf = ({ from, to, columns }: Axis, { glyphs }: Drawing): string => {
  const whole = clock(from, true).slice(0, 10) !== clock(to, true).slice(0, 10)
  const [left, right] = [clock(from, whole), clock(to, whole)]
  const room = columns - left.length - right.length - 2
  return room < 1 ? left.slice(0, columns).padEnd(columns) : `${left} ${glyphs.axis.repeat(room)} ${right}`
}

export interface TimelinePicture {
  readonly entries: readonly TimelineEntry[]
  readonly suppressed: number
  whose(entry: TimelineEntry): string
}

/** A row for each entry: whose, what, when on a line of time that all share, and how it ended. */
export const timelinePicture = ({ entries, suppressed, whose }: TimelinePicture, drawing: Drawing): string[] => {
  const { columns, glyphs, paint, cell } = drawing
  const [whoWidth, endWidth] = [widestOf(entries.map(whose), 14), widestOf(entries.map(outcomeOf), Math.floor(columns / 3))]
  const left = columns - whoWidth - endWidth - 6
  const commandWidth = widestOf(
    entries.map(({ command }) => command),
    Math.max(0, Math.floor(left * 0.45)),
  )
  const times = entries.flatMap(timesOf)
  const axis: Axis = { from: Math.min(...times), to: Math.max(...times), columns: left - commandWidth }
  const rows = entries.map((entry) =>
    [
      cell(whose(entry), whoWidth),
      cell(entry.command, commandWidth),
      barOf(entry, axis, drawing),
      paint(colourOf(entry), cell(outcomeOf(entry), endWidth).trimEnd()),
    ].join('  '),
  )
  const key = `${clock(axis.from, true).slice(0, 10)} UTC, ${glyphs.bar} ran, ${glyphs.denied} refused, ${glyphs.open} no end yet`
  return [
    paint('dim', `${' '.repeat(whoWidth + commandWidth + 4)}${axisOf(axis, drawing)}`),
    ...rows,
    paint('dim', cell(key, columns).trimEnd()),
    ...(suppressed > 0 ? [`${counted(suppressed, 'refusal')} more, counted only`] : []),
  ]
}

/** `x0x audit timeline`. */
export const runAuditTimeline = async (context: CliContext, line: CommandLine): Promise<number> => {
  const count = line.value('count') ?? ''
  const [file = null] = line.words
  const max = Number(count)
  if (!/^[1-9][0-9]{0,2}$/.test(count) || max > MAX_ROWS)
    throw usageError(`--count: ${JSON.stringify(count)} is not a count from 1 to ${MAX_ROWS}`)
  const path = file ?? (await runningJournal(context, 'x0x audit timeline', false))
  const names =
    file === null
      ? new Map(
          (await context.api.json<ContactsAnswer>({ method: 'GET', path: '/contacts' })).contacts.map((one) => [one.agent_id, one.name]),
        )
      : new Map<string, string>()
  const timeline = new Timeline({ max })
  for await (const text of tailJournal(path, { lines: MAX_READ_LINES, follow: false })) {
    const entry = parseLine(Buffer.from(text))
    if (entry !== null) timeline.add(entry)
  }
  const { entries, suppressed } = timeline
  const whose = ({ agent_id, client_name }: TimelineEntry): string =>
    agent_id !== null ? (names.get(agent_id) ?? shortId(agent_id)) : JSON.stringify(client_name ?? '')
  return printAnswer(context, { entries, suppressed }, async () => {
    const lines =
      entries.length === 0
        ? ['nothing ran here and nothing was refused; commands that this agent asked of others: x0x audit tail --outgoing']
        : timelinePicture({ entries, suppressed, whose }, drawingFor(context.stdout, context.env))
    return write(context.stdout, `${lines.join('\n')}\n`)
  })
}
