import { readLines } from '../../../audit/read-lines.ts'
import { AppError, errorText, isAppError } from '../../../base/errors.ts'
import { Replay, type Difference } from '../../../doors/tools/replay.ts'
import { MAX_RECORD_LINE, parseRecordLine } from '../../../protocol/tool-record.ts'
import type { CliContext } from '../context.ts'
import { counted, painter, printJson, printLine, write } from '../print.ts'
import { shownLine } from '../../../base/visible-text.ts'

/** Characters of a value that are shown of a difference. */
const MAX_SHOWN = 300

interface Found extends Difference {
  /** Of the record, from 1. */
  readonly line: number
}

interface Report {
  readonly ok: boolean
  readonly lines: number
  readonly runs: number
  readonly results: number
  readonly interrupted: number
  readonly unchecked: number
  readonly complete: boolean
  readonly difference: Found | null
}

/** Throws `bad_request`, which names file and line. */
const replayed = async (file: string): Promise<Report> => {
  const replay = new Replay()
  let lines = 0
  const malformed = (reason: string): AppError =>
    new AppError('bad_request', `${file}:${lines}: ${reason}`, { data: { file, line: lines } })
  const take = async (bytes: Buffer | null, complete: boolean): Promise<Difference | null> => {
    lines += 1
    if (!complete) throw malformed('the line is cut off')
    const line = bytes === null ? `it is longer than ${MAX_RECORD_LINE} bytes` : parseRecordLine(bytes)
    if (typeof line === 'string') throw malformed(line)
    return replay.take(line).catch((error: unknown) => {
      throw isAppError(error, 'bad_request') ? malformed(error.message) : error
    })
  }
  const report = (difference: Difference | null): Report => {
    const { runs, results, interrupted, unchecked, complete } = replay
    return {
      ok: difference === null,
      lines,
      runs,
      results,
      interrupted,
      unchecked,
      complete,
      difference: difference && { line: lines, ...difference },
    }
  }
  for await (const some of readLines(file, undefined, undefined, MAX_RECORD_LINE))
    for (const { bytes, complete } of some) {
      const difference = await take(bytes, complete)
      if (difference !== null) return report(difference)
    }
  if (lines === 0) throw malformed('there is nothing in it')
  return report(null)
}

const opened =
  (file: string) =>
  (error: unknown): never => {
    if (isAppError(error)) throw error
    throw new AppError('bad_request', `${file} cannot be read: ${errorText(error)}`, { cause: error, data: { file } })
  }

/** A value around the place at which it differs from another. */
const shownValue = (value: unknown, other: unknown): string => {
  const [text, against] = [value, other].map((one) => (one === undefined ? 'nothing' : JSON.stringify(one))) as [string, string]
  let same = 0
  while (same < text.length && text[same] === against[same]) same += 1
  const from = Math.max(0, same - MAX_SHOWN / 3)
  return `${from === 0 ? '' : '…'}${shownLine(text.slice(from, from + MAX_SHOWN))}${text.length > from + MAX_SHOWN ? '…' : ''}`
}

/** `x0x replay FILE`: 0 where every result follows from what was recorded, 1 where one does not, 2 where the file is no record. */
export const runReplay = async (context: CliContext, file: string): Promise<number> => {
  const report = await replayed(file).catch(opened(file))
  const { difference, runs, results, interrupted, unchecked, complete } = report
  if (context.json) {
    await printJson(context, report)
    return report.ok ? 0 : 1
  }
  const paint = painter(context.stdout, context.env)
  const counts = `${counted(results, 'result')} of ${counted(runs, 'run')}`
  if (interrupted > 0)
    await printLine(
      context,
      `${paint('dim', 'note')}     ${counted(interrupted, 'run')} without an end: killed with its server, or still running`,
    )
  if (unchecked > 0)
    await printLine(context, `${paint('dim', 'note')}     ${counted(unchecked, 'result')} of runs that were over long before: not compared`)
  if (!complete) await printLine(context, `${paint('dim', 'note')}     the record says that it has not everything`)
  if (difference === null) {
    await printLine(context, `${paint('green', 'ok')}       ${counts} follow from what was recorded`)
    return 0
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
