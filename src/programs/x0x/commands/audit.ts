import { AppError } from '../../../base/errors.ts'
import { counted, signalName } from '../../../base/format.ts'
import { shownLine, visibleJson } from '../../../base/visible-text.ts'
import { untilEnded, write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { durationText } from '../../../doors/console/transcript-text.ts'
import { loadPrimitives } from '../../../identity/primitives.ts'
import type { AnyRunKey, JournalLine, LocalKey } from '../../../journal/events.ts'
import { parseLine } from '../../../journal/parse-line.ts'
import type { RunKey } from '../../../journal/run-key.ts'
import { listLocalRuns, listRunningMarks, localMarksOf } from '../../../journal/running-marks.ts'
import { tailJournal } from '../../../journal/tail.ts'
import { Timeline, type TimelineEntry } from '../../../journal/timeline.ts'
import { type VerifyReport, verifyJournal } from '../../../journal/verify.ts'
import type { ContactsAnswer } from '../../../protocol/api-answers.ts'
import { type AgentId, isHexId, shortId } from '../../../protocol/ids.ts'
import { loadSuccessions, previousKeys } from '../../../trust/successions.ts'
import type { CliContext } from '../context.ts'
import { type Drawing, drawingFor, widestOf } from '../drawing.ts'
import { usageError } from '../failure.ts'
import { type Paint, painter, printAnswer, printJson, printLine } from '../print.ts'

interface JournalLocations {
  readonly journal?: { readonly path?: string | null } | null
  readonly outgoing_journal?: { readonly path?: string }
}

/** The audit log or request log of the running daemon. */
export const runningJournal = async (context: CliContext, command: string, outgoing: boolean): Promise<string> => {
  const places = await context.api.json<JournalLocations>({ method: 'GET', path: '/diagnostics/exec' })
  const path = (outgoing ? places.outgoing_journal : places.journal)?.path
  if (typeof path === 'string') return path
  throw new AppError('not_found', 'this daemon has no audit log: exec is not configured', {
    data: { next: `Try: ${command} FILE` },
  })
}

const oneJournal = (): Error => usageError('--outgoing selects the request log: remove the file')

/** Removes keys and signatures, which are thousands of characters. */
const withoutKeys = (line: JournalLine): JournalLine =>
  'signer' in line
    ? {
        ...line,
        signer: line.signer && { ...line.signer, public_key: `${line.signer.public_key.slice(0, 12)}…` },
        ...('signature' in line ? { signature: line.signature && `${line.signature.slice(0, 12)}…` } : {}),
      }
    : line

/** One line for users, with time, event, run, agents, then the fields of the event. */
const renderLine = (line: JournalLine): string => {
  const { ts, event, chain: _chain, n: _n, prev: _prev, ...rest } = withoutKeys(line)
  const { request_id, agent_id, session_id, machine_id: _machine, ...fields } = rest as Partial<RunKey & LocalKey>
  const facts = Object.entries(fields).map(([name, value]) => `${name}=${JSON.stringify(value)}`)
  const whose = [request_id, agent_id === undefined ? session_id : shortId(agent_id)].filter((id) => id !== undefined)
  return shownLine([ts, event.padEnd(8), ...whose, ...facts].join('  '))
}

const rendered = (text: string): string => {
  const line = parseLine(Buffer.from(text))
  return line === null ? shownLine(text) : renderLine(line)
}

export const runAuditTail = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [lines, outgoing] = [line.value('lines') ?? '', line.has('outgoing')]
  const [file = null] = line.words
  if (!/^[0-9]{1,7}$/.test(lines)) throw usageError(`--lines: ${JSON.stringify(lines)} is not a count`)
  if (outgoing && file !== null) throw oneJournal()
  const path = file ?? (await runningJournal(context, 'x0x audit tail', outgoing))
  return untilEnded(context, async (signal) => {
    for await (const one of tailJournal(path, { lines: Number(lines), follow: line.has('follow') }, signal))
      if (!(await write(context.stdout, `${context.json ? visibleJson(one) : rendered(one)}\n`))) break
  })
}

/** The accepted signers, the newest first: the named agent, or this daemon's agent with the keys that it replaced. Null accepts any. */
const signersOf = async (context: CliContext, line: CommandLine): Promise<AgentId[] | null> => {
  const agent = line.value('agent')
  if (agent !== null && !isHexId(agent)) throw usageError(`--agent: ${JSON.stringify(agent)} is not the 64 hex digits of an agent's id`)
  if (agent !== null) return [agent]
  if (line.words.length > 0) return null
  const { agent_id } = await context.api.json<{ agent_id: AgentId }>({ method: 'GET', path: '/agent' })
  const successions = await loadSuccessions(context.api.paths.successions)
  return [agent_id, ...previousKeys(successions, agent_id).map(({ from }) => from)]
}

const signedText = ({ signed, lines, torn_lines }: VerifyReport, required: boolean): string => {
  const { agents, through } = signed
  if (through === null) return 'none: anyone who can write the file can have rewritten it'
  const left = lines - torn_lines - signed.lines
  const rest =
    left === 0 ? 'all of it' : `${counted(signed.lines, 'line')}; ${counted(left, 'line')} not signed yet, and can have been rewritten`
  const whose = required ? '' : '; use --agent to require one agent'
  return `${rest}; through ${through.file}:${through.line} (${through.ts}), by agent ${agents.join(', ')}${whose}`
}

/** `x0x audit verify` returns 0 without a break, otherwise 1. Compare the heads with an older copy to detect a truncated end. */
export const runAuditVerify = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [files, outgoing] = [line.words, line.has('outgoing')]
  if (outgoing && files.length > 0) throw oneJournal()
  await loadPrimitives()
  const agentIds = await signersOf(context, line)
  const paths = files.length > 0 ? files : [await runningJournal(context, 'x0x audit verify', outgoing)]
  // Live runs have no end yet. If their marks cannot be read, they are shown as unfinished.
  const running = async (): Promise<AnyRunKey[]> => {
    const ofAgents = listRunningMarks(context.api.paths.runs).catch(() => [])
    const ofSessions = paths.map(async (path) => listLocalRuns(localMarksOf(path)))
    return (await Promise.all<AnyRunKey[]>([ofAgents, ...ofSessions])).flat()
  }
  const report = await verifyJournal(paths, { running, continued: line.has('continued'), agentIds })
  if (context.json) await printJson(context, report)
  else for (const text of renderReport(report, agentIds !== null, painter(context.stdout, context.env))) await printLine(context, text)
  return report.ok ? 0 : 1
}

const renderReport = (report: VerifyReport, required: boolean, paint: Paint): string[] => {
  const { problems, heads, lives, unlinked_lives, torn_lines, open_chains } = report
  const notes = [
    ...(torn_lines > 0 ? [`${counted(torn_lines, 'line')} cut off by a crash or a full disk`] : []),
    ...(open_chains > 0 ? [`${counted(open_chains, 'daemon lifetime')} without an end: still running, killed, or cut off`] : []),
    ...(unlinked_lives > 0
      ? [`${counted(unlinked_lives, 'daemon lifetime')} started in a new file without a link to the file before`]
      : []),
  ]
  const counts = [counted(report.lines, 'line'), counted(lives, 'daemon lifetime'), `${counted(report.running, 'run')} active`].join(', ')
  return [
    ...problems.map(({ file, line, message }) => `${paint('red', 'problem')}  ${shownLine(`${file}:${line}: ${message}`)}`),
    ...heads
      .filter(({ last }) => last)
      .map(
        ({ chain, lines, sha256 }) =>
          `${paint('dim', 'head')}     chain ${chain}: ${counted(lines, 'line')}, SHA-256 of the last ${sha256}`,
      ),
    `${paint('dim', 'signed')}   ${shownLine(signedText(report, required))}`,
    ...notes.map((note) => `${paint('dim', 'note')}     ${note}`),
    report.ok
      ? `${paint('green', 'ok')}       no break found: ${counts}`
      : `${paint('red', 'damaged')}  ${counted(report.problem_count, 'problem')}: ${counts}`,
  ]
}

/** Lines read from the end of a journal. They hold about 3,300 runs, and take less than a second. */
const MAX_READ_LINES = 10_000
/** Limit on rows of a picture. */
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

/** The time of day, with the date if there are several days. */
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

/** A row for each entry, with the agents, the command, a bar on a common time axis, and the end. */
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
  const key = `${clock(axis.from, true).slice(0, 10)} UTC, ${glyphs.bar} ran, ${glyphs.denied} denied, ${glyphs.open} active`
  return [
    paint('dim', `${' '.repeat(whoWidth + commandWidth + 4)}${axisOf(axis, drawing)}`),
    ...rows,
    paint('dim', cell(key, columns).trimEnd()),
    ...(suppressed > 0 ? [`${counted(suppressed, 'denial')} more, only counted`] : []),
  ]
}

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
        ? ['no runs and no denials on this machine. For requests of this agent: x0x audit tail --outgoing']
        : timelinePicture({ entries, suppressed, whose }, drawingFor(context.stdout, context.env))
    return write(context.stdout, `${lines.join('\n')}\n`)
  })
}
