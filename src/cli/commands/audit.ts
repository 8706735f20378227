import { parseLine } from '../../audit/parse-line.ts'
import { listLocalRuns, localMarksOf } from '../../audit/local-marks.ts'
import { listRunningMarks } from '../../audit/running-marks.ts'
import { tailJournal } from '../../audit/tail.ts'
import { verifyJournal } from '../../audit/verify.ts'
import { AppError } from '../../base/errors.ts'
import { visibleJson } from '../../base/visible-text.ts'
import { shortId } from '../../protocol/ids.ts'
import type { AnyRunKey, JournalLine, LocalKey, RunKey } from '../../audit/events.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { counted, painter, printJson, printLine, write } from '../print.ts'
import { shownLine } from '../terminal-text.ts'

interface JournalPlaces {
  readonly journal?: { readonly path?: string | null } | null
  readonly outgoing_journal?: { readonly path?: string }
}

/** The journal that the running daemon writes: of what runs here, or of what it asks of others. */
const runningJournal = async (context: CliContext, command: string, outgoing: boolean): Promise<string> => {
  const places = await context.api.json<JournalPlaces>({ method: 'GET', path: '/diagnostics/exec' })
  const path = (outgoing ? places.outgoing_journal : places.journal)?.path
  if (typeof path === 'string') return path
  throw new AppError('not_found', 'this daemon keeps no journal: exec is not configured', {
    data: { next: `name the file: ${command} FILE` },
  })
}

const oneJournal = (): Error => usageError('--outgoing names a journal already: leave out the file')

export interface TailOptions {
  readonly file: string | null
  /** Instead of a file: what this daemon asked of others. */
  readonly outgoing: boolean
  /** As typed. */
  readonly lines: string
  readonly follow: boolean
}

/** One line for people: when, what, which run, whose, then the fields of the event. */
const renderLine = (line: JournalLine): string => {
  const { ts, event, chain: _chain, n: _n, prev: _prev, ...rest } = line
  const { request_id, agent_id, session_id, machine_id: _machine, ...fields } = rest as Partial<RunKey & LocalKey>
  const facts = Object.entries(fields).map(([name, value]) => `${name}=${JSON.stringify(value)}`)
  const whose = [request_id, agent_id === undefined ? session_id : shortId(agent_id)].filter((id) => id !== undefined)
  return shownLine([ts, event.padEnd(8), ...whose, ...facts].join('  '))
}

const rendered = (text: string): string => {
  const line = parseLine(Buffer.from(text))
  return line === null ? shownLine(text) : renderLine(line)
}

/** `x0x audit tail`. */
export const runAuditTail = async (context: CliContext, options: TailOptions): Promise<number> => {
  if (!/^[0-9]{1,7}$/.test(options.lines)) throw usageError(`--lines: ${JSON.stringify(options.lines)} is not a count`)
  if (options.outgoing && options.file !== null) throw oneJournal()
  const path = options.file ?? (await runningJournal(context, 'x0x audit tail', options.outgoing))
  const ending = new AbortController()
  const stop = context.onSignal(() => ending.abort())
  const gone = (): void => ending.abort()
  context.stdout.on('error', gone)
  try {
    for await (const line of tailJournal(path, { lines: Number(options.lines), follow: options.follow }, ending.signal)) {
      if (!(await write(context.stdout, `${context.json ? visibleJson(line) : rendered(line)}\n`))) break
    }
    return 0
  } finally {
    stop()
    ending.abort()
    context.stdout.off('error', gone)
  }
}

export interface VerifyOptions {
  readonly files: readonly string[]
  /** Instead of files: what this daemon asked of others. */
  readonly outgoing: boolean
  /** Older files were rotated away. */
  readonly continued: boolean
}

/** `x0x audit verify`: 0 when no break is found, 1 when there is one. The heads let a reader see with an older copy whether an end was cut off. */
export const runAuditVerify = async (context: CliContext, options: VerifyOptions): Promise<number> => {
  if (options.outgoing && options.files.length > 0) throw oneJournal()
  const paths = options.files.length > 0 ? options.files : [await runningJournal(context, 'x0x audit verify', options.outgoing)]
  // What runs now has no end yet. Where the marks may not be read, such runs are shown as unfinished.
  const running = async (): Promise<AnyRunKey[]> => {
    const ofAgents = listRunningMarks(context.api.paths.runs).catch(() => [])
    const ofSessions = paths.map(async (path) => listLocalRuns(localMarksOf(path)))
    return (await Promise.all<AnyRunKey[]>([ofAgents, ...ofSessions])).flat()
  }
  const report = await verifyJournal(paths, { running, continued: options.continued })
  if (context.json) {
    await printJson(context, report)
    return report.ok ? 0 : 1
  }
  const paint = painter(context.stdout, context.env)
  for (const { file, line, message } of report.problems) {
    await printLine(context, `${paint('red', 'problem')}  ${shownLine(`${file}:${line}: ${message}`)}`)
  }
  for (const { chain, lines, sha256 } of report.heads) {
    await printLine(context, `${paint('dim', 'head')}     chain ${chain}: ${counted(lines, 'line')}, SHA-256 of the last ${sha256}`)
  }
  const counts = `${counted(report.lines, 'line')}, ${counted(report.chains, 'chain')}, ${counted(report.running, 'run')} going on`
  const torn = report.torn_lines > 0 ? `, ${counted(report.torn_lines, 'line')} cut off by a crash or a full disk` : ''
  const verdict = report.ok
    ? `${paint('green', 'ok')}       no break found`
    : `${paint('red', 'damaged')}  ${counted(report.problem_count, 'problem')}`
  await printLine(context, `${verdict}: ${counts}${torn}`)
  return report.ok ? 0 : 1
}
