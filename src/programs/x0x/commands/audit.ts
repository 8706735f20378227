import { counted } from '../../../base/counted.ts'
import { AppError } from '../../../base/errors.ts'
import { shownLine, visibleJson } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { loadPrimitives } from '../../../identity/primitives.ts'
import type { AnyRunKey, JournalLine, LocalKey } from '../../../journal/events.ts'
import { listLocalRuns, localMarksOf } from '../../../journal/local-marks.ts'
import { parseLine } from '../../../journal/parse-line.ts'
import type { RunKey } from '../../../journal/run-key.ts'
import { listRunningMarks } from '../../../journal/running-marks.ts'
import { tailJournal } from '../../../journal/tail.ts'
import { type VerifyReport, verifyJournal } from '../../../journal/verify.ts'
import { type AgentId, isHexId, shortId } from '../../../protocol/ids.ts'
import { untilEnded, write } from '../../../supervision/program-output.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { type Paint, painter, printJson, printLine } from '../print.ts'

interface JournalPlaces {
  readonly journal?: { readonly path?: string | null } | null
  readonly outgoing_journal?: { readonly path?: string }
}

/** The journal that the running daemon writes: of what runs here, or of what it asks of others. */
export const runningJournal = async (context: CliContext, command: string, outgoing: boolean): Promise<string> => {
  const places = await context.api.json<JournalPlaces>({ method: 'GET', path: '/diagnostics/exec' })
  const path = (outgoing ? places.outgoing_journal : places.journal)?.path
  if (typeof path === 'string') return path
  throw new AppError('not_found', 'this daemon keeps no journal: exec is not configured', {
    data: { next: `name the file: ${command} FILE` },
  })
}

const oneJournal = (): Error => usageError('--outgoing names a journal already: leave out the file')

/** Keys and signatures are thousands of characters that nobody reads. */
const withoutKeys = (line: JournalLine): JournalLine =>
  'signer' in line
    ? {
        ...line,
        signer: line.signer && { ...line.signer, public_key: `${line.signer.public_key.slice(0, 12)}…` },
        ...('signature' in line ? { signature: line.signature && `${line.signature.slice(0, 12)}…` } : {}),
      }
    : line

/** One line for people: when, what, which run, whose, then the fields of the event. */
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

/** `x0x audit tail`. */
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

/** Says who must have signed: whom the caller names, or the daemon whose journal it is; null: nobody was named. */
const signerOf = async (context: CliContext, line: CommandLine): Promise<AgentId | null> => {
  const agent = line.value('agent')
  if (agent === null)
    return line.words.length > 0 ? null : (await context.api.json<{ agent_id: AgentId }>({ method: 'GET', path: '/agent' })).agent_id
  if (!isHexId(agent)) throw usageError(`--agent: ${JSON.stringify(agent)} is not the 64 hex digits of an agent's id`)
  return agent
}

/** What a signature covers, and whose word that is. */
const signedText = ({ signed, lines, torn_lines }: VerifyReport, agent: AgentId | null): string => {
  const { agents, through } = signed
  if (through === null) return 'nothing: whoever may write the file may have written all of it anew'
  const left = lines - torn_lines - signed.lines
  const rest =
    left === 0 ? 'all of it' : `${counted(signed.lines, 'line')}; ${counted(left, 'line')} not yet, and may have been written anew`
  const whose = agent === null ? `; give --agent to say who it should be` : ''
  return `${rest}; through ${through.file}:${through.line} (${through.ts}), by agent ${agents.join(', ')}${whose}`
}

/**
 * `x0x audit verify`: 0 when no break is found, 1 when there is one. The heads let a reader see with an older copy
 * whether the end was cut off.
 */
export const runAuditVerify = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [files, outgoing] = [line.words, line.has('outgoing')]
  if (outgoing && files.length > 0) throw oneJournal()
  const agentId = await signerOf(context, line)
  await loadPrimitives()
  const paths = files.length > 0 ? files : [await runningJournal(context, 'x0x audit verify', outgoing)]
  // What runs now has no end yet. Where the marks may not be read, such runs are shown as unfinished.
  const running = async (): Promise<AnyRunKey[]> => {
    const ofAgents = listRunningMarks(context.api.paths.runs).catch(() => [])
    const ofSessions = paths.map(async (path) => listLocalRuns(localMarksOf(path)))
    return (await Promise.all<AnyRunKey[]>([ofAgents, ...ofSessions])).flat()
  }
  const report = await verifyJournal(paths, { running, continued: line.has('continued'), agentId })
  if (context.json) await printJson(context, report)
  else for (const text of renderReport(report, agentId, painter(context.stdout, context.env))) await printLine(context, text)
  return report.ok ? 0 : 1
}

const renderReport = (report: VerifyReport, agentId: AgentId | null, paint: Paint): string[] => {
  const { problems, heads, lives, unlinked_lives, torn_lines, open_chains } = report
  const notes = [
    ...(torn_lines > 0 ? [`${counted(torn_lines, 'line')} cut off by a crash or a full disk`] : []),
    ...(open_chains > 0
      ? [`${counted(open_chains, 'life', 'lives')} without an end: it still goes on, was killed, or its end was cut off`]
      : []),
    ...(unlinked_lives > 0 ? [`${counted(unlinked_lives, 'life', 'lives')} begun in a new file, with no word of the file before`] : []),
  ]
  const counts = [counted(report.lines, 'line'), counted(lives, 'life', 'lives'), `${counted(report.running, 'run')} going on`].join(', ')
  return [
    ...problems.map(({ file, line, message }) => `${paint('red', 'problem')}  ${shownLine(`${file}:${line}: ${message}`)}`),
    ...heads
      .filter(({ last }) => last)
      .map(
        ({ chain, lines, sha256 }) =>
          `${paint('dim', 'head')}     chain ${chain}: ${counted(lines, 'line')}, SHA-256 of the last ${sha256}`,
      ),
    `${paint('dim', 'signed')}   ${shownLine(signedText(report, agentId))}`,
    ...notes.map((note) => `${paint('dim', 'note')}     ${note}`),
    report.ok
      ? `${paint('green', 'ok')}       no break found: ${counts}`
      : `${paint('red', 'damaged')}  ${counted(report.problem_count, 'problem')}: ${counts}`,
  ]
}
