import { AppError, isAppError } from '../../../base/errors.ts'
import { unreadable } from '../../../base/files.ts'
import { counted } from '../../../base/format.ts'
import { shownLine } from '../../../base/visible-text.ts'
import { write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { type Difference, Replay } from '../../../doors/tools/replay.ts'
import { RecordDigest } from '../../../doors/tools/tool-run-recorder.ts'
import { readLines } from '../../../journal/read.ts'
import { MAX_RECORD_LINE, parseRecordLine } from '../../../protocol/tool-record.ts'
import type { CliContext } from '../context.ts'
import { painter, printJson, printLine } from '../print.ts'

/** Length of a value in a difference. */
const MAX_SHOWN = 300

interface Found extends Difference {
  /** Line of the record, from 1. */
  readonly line: number
}

/**
 * Why a record is not complete and correct. With `differs`, a result does not follow. With `not_finished`, the last line is missing,
 * because the server was killed or could not write. With `altered`, the last line contradicts the earlier ones.
 */
type Reason = 'differs' | 'not_finished' | 'altered'

interface Report {
  readonly ok: boolean
  /** Null if it is correct. */
  readonly reason: Reason | null
  readonly lines: number
  readonly runs: number
  readonly results: number
  readonly interrupted: number
  readonly unchecked: number
  readonly complete: boolean
  readonly difference: Found | null
}

/** Throws `bad_request` with file and line. */
const replayed = async (file: string): Promise<Report> => {
  const replay = new Replay()
  const digest = new RecordDigest()
  let lines = 0
  let altered = false
  const malformed = (reason: string): AppError =>
    new AppError('bad_request', `${file}:${lines}: ${reason}`, { data: { file, line: lines } })
  const take = async (bytes: Buffer | null, complete: boolean): Promise<Difference | null> => {
    // The partial last line of a killed server. The lines before it are complete.
    if (!complete && bytes !== null && lines > 0 && !replay.finished) return null
    lines += 1
    if (!complete) throw malformed('the line is cut off')
    const line = bytes === null ? `it is longer than ${MAX_RECORD_LINE} bytes` : parseRecordLine(bytes)
    if (typeof line === 'string') throw malformed(line)
    if (line.event === 'end') {
      const before = digest.value()
      altered = line.lines !== before.lines || line.sha256 !== before.sha256
    }
    if (bytes !== null) digest.add(bytes)
    return replay.take(line).catch((error: unknown) => {
      throw isAppError(error, 'bad_request') ? malformed(error.message) : error
    })
  }
  const report = (difference: Difference | null): Report => {
    const { runs, results, interrupted, unchecked, complete } = replay
    const reason = difference === null ? (altered ? 'altered' : replay.finished ? null : 'not_finished') : 'differs'
    return {
      ok: reason === null,
      reason,
      lines,
      runs,
      results,
      interrupted,
      unchecked,
      complete,
      difference: difference && { line: lines, ...difference },
    }
  }
  for await (const some of readLines(file, { max: MAX_RECORD_LINE }))
    for (const { bytes, complete } of some) {
      const difference = await take(bytes, complete)
      if (difference !== null) return report(difference)
    }
  if (lines === 0) throw malformed('it is empty')
  return report(null)
}

const opened =
  (file: string) =>
  (error: unknown): never => {
    if (isAppError(error)) throw error
    throw unreadable('bad_request', file, error)
  }

/** A value around the place where it differs from another. */
const shownValue = (value: unknown, other: unknown): string => {
  const [text, against] = [value, other].map((one) => (one === undefined ? 'nothing' : JSON.stringify(one))) as [string, string]
  let same = 0
  while (same < text.length && text[same] === against[same]) same += 1
  const from = Math.max(0, same - MAX_SHOWN / 3)
  return `${from === 0 ? '' : '…'}${shownLine(text.slice(from, from + MAX_SHOWN))}${text.length > from + MAX_SHOWN ? '…' : ''}`
}

const WITHOUT_END: Readonly<Record<Exclude<Reason, 'differs'>, string>> = {
  not_finished: 'not finished: its server was killed or could not write, or still runs',
  altered: 'altered: lines were changed, added or removed since its server wrote the last one',
}

const notes = ({ interrupted, unchecked, complete }: Report): string[] => [
  ...(interrupted > 0 ? [`${counted(interrupted, 'run')} without an end: killed with its server, or still running`] : []),
  ...(unchecked > 0 ? [`${counted(unchecked, 'result')} of runs that were over long before: not compared`] : []),
  ...(complete ? [] : ['the record is marked as incomplete']),
]

/**
 * `x0x replay FILE` returns 0 if every result follows from the record, 1 if one does not or the record is incomplete, and 2 for a file of
 * another kind.
 */
export const runReplay = async (context: CliContext, { words: [file = ''] }: CommandLine): Promise<number> => {
  const report = await replayed(file).catch(opened(file))
  const { difference, reason, runs, results } = report
  if (context.json) {
    await printJson(context, report)
    return report.ok ? 0 : 1
  }
  const paint = painter(context.stdout, context.env)
  const counts = `${counted(results, 'result')} of ${counted(runs, 'run')}`
  for (const note of notes(report)) await printLine(context, `${paint('dim', 'note')}     ${note}`)
  if (difference === null) {
    const follow = `${counts} are equal to the record`
    if (reason === null || reason === 'differs') {
      await printLine(context, `${paint('green', 'ok')}       ${follow}`)
      return 0
    }
    await printLine(context, `${paint('dim', 'note')}     ${follow}`)
    await printLine(context, `${paint('red', 'fails')}    ${shownLine(file)} is ${WITHOUT_END[reason]}`)
    return 1
  }
  const { line, run, field, recorded, replayed: now } = difference
  await write(
    context.stdout,
    [
      `${paint('red', 'differs')}  ${shownLine(`${file}:${line}: ${field} of run ${run}`)}`,
      `         recorded  ${shownValue(recorded, now)}`,
      `         replayed  ${shownValue(now, recorded)}`,
      '',
    ].join('\n'),
  )
  return 1
}
