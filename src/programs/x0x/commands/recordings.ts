import { setTimeout as sleep } from 'node:timers/promises'
import { shellWords } from '../../../base/format.ts'
import { TerminalFilter } from '../../../base/terminal-text.ts'
import { shown, shownLine } from '../../../base/visible-text.ts'
import { untilEnded, write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import type { CastEvent } from '../../../protocol/console/asciicast.ts'
import {
  type RecordingSummary,
  listRecordings,
  newestRecording,
  readRecording,
  recordingBytes,
  recordingFacts,
  removeRecording,
} from '../../../transcripts/read-recording.ts'
import { recordingFile, recordingsDirIn } from '../../../transcripts/recordings.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printJson, printNotice, printTable } from '../print.ts'
import { TerminalOutputFilter } from '../terminal/output-filter.ts'

/** Longest pause while nothing happens. */
const MAX_PAUSE_MS = 2_000

const directoryOf = (context: CliContext, line: CommandLine): string => line.value('dir') ?? recordingsDirIn(context.api.paths.dir)

const rowOf = ({ name, bytes, duration_ms, argv }: RecordingSummary): string[] => [
  name,
  `${(duration_ms / 1_000).toFixed(1)} s`,
  `${bytes} B`,
  shownLine(shellWords(argv)),
]

export const runRecordingsList = async (context: CliContext, line: CommandLine, count: number): Promise<number> => {
  const directory = directoryOf(context, line)
  const recordings = await listRecordings(directory, count)
  if (context.json) await printJson(context, { directory, recordings })
  else if (recordings.length > 0) await printTable(context, ['NAME', 'TIME', 'SIZE', 'COMMAND'], recordings.map(rowOf))
  return 0
}

/** What a recording shows, as text without control sequences, or with `--json` as events. */
export const runRecordingsPrint = async (context: CliContext, line: CommandLine): Promise<number> => {
  const directory = directoryOf(context, line)
  const [named = null] = line.words
  const name = named ?? (await newestRecording(directory))
  const filter = new TerminalFilter()
  const textOf = ({ ms, kind, text }: CastEvent): string => {
    if (context.json) return `${JSON.stringify({ ms: Math.round(ms), kind: kind === 'o' ? 'output' : 'resize', text })}\n`
    return kind === 'o' ? shown(filter.push(text)) : ''
  }
  return untilEnded(context, async (signal) => {
    for await (const event of readRecording(directory, name, signal)) if (!(await write(context.stdout, textOf(event)))) return
    if (!context.json) await write(context.stdout, shown(filter.end()))
  })
}

export const runRecordingsExport = async (context: CliContext, line: CommandLine): Promise<number> => {
  const [name = ''] = line.words
  const format = line.value('format') ?? 'asciicast'
  if (format === 'text') return runRecordingsPrint(context, line)
  if (format !== 'asciicast')
    throw usageError(`--format: ${JSON.stringify(format)} is not possible with --terminals`, 'Use asciicast or text')
  for await (const chunk of recordingBytes(directoryOf(context, line), name)) if (!(await write(context.stdout, chunk))) break
  return 0
}

export const runRecordingsRemove = async (context: CliContext, line: CommandLine): Promise<number> => {
  const names = line.words
  for (const name of names) recordingFile(name)
  for (const name of names) await removeRecording(directoryOf(context, line), name)
  if (context.json) await printJson(context, { removed: names })
  return 0
}

const speedOf = (line: CommandLine): number => {
  const text = line.value('speed') ?? '1'
  const speed = Number(text)
  if (/^\d{1,4}(\.\d{1,3})?$/.test(text) && speed > 0) return speed
  throw usageError(`--speed: ${JSON.stringify(text)} is not a number above 0`)
}

/** `x0x transcripts play`: shows a recording with its times. What could act on the terminal is left out, as by `x0x exec -t`. */
export const runRecordingsPlay = async (context: CliContext, line: CommandLine): Promise<number> => {
  const directory = directoryOf(context, line)
  const [named = null] = line.words
  const name = named ?? (await newestRecording(directory))
  const speed = speedOf(line)
  const { width, height } = await recordingFacts(directory, name)
  const { columns = width, rows = height } = context.stdout as { columns?: number; rows?: number }
  if (columns < width || rows < height)
    await printNotice(context, `the recording has ${width} columns and ${height} rows; this terminal has ${columns} and ${rows}`)
  const filter = new TerminalOutputFilter({ raw: false, answers: false })
  try {
    return await untilEnded(context, async (signal) => {
      let last = 0
      for await (const { ms, kind, text } of readRecording(directory, name, signal)) {
        const pause = Math.min(Math.max(0, ms - last), MAX_PAUSE_MS) / speed
        last = Math.max(last, ms)
        if (pause >= 1) await sleep(pause, undefined, { signal })
        if (kind === 'o' && !(await write(context.stdout, filter.push(Buffer.from(text))))) return
      }
    })
  } finally {
    await write(context.stdout, `${filter.end()}\r\n`)
  }
}
