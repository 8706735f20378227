import { shownLine, visibleJson } from '../../../base/visible-text.ts'
import { untilEnded, write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { Asciicast } from '../../../doors/console/asciicast.ts'
import { FILE_PAGE, pageOf, transcriptLineText } from '../../../doors/console/transcript-text.ts'
import {
  type Match,
  followTranscript,
  listTranscripts,
  newestTranscript,
  removeTranscript,
  searchTranscripts,
} from '../../../transcripts/browse.ts'
import { checkName, transcriptsDir } from '../../../transcripts/directory.ts'
import { type TranscriptLine, readTranscript } from '../../../transcripts/read.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printJson, printLine, printNotice } from '../print.ts'

/** Recorded terminals, in place of the transcripts of consoles. */
const recordings = async () => import('./recordings.ts')

const pathOf = (line: CommandLine): string => line.value('dir') ?? transcriptsDir()

const countOf = (line: CommandLine): number => {
  const text = line.value('count') ?? ''
  if (/^[0-9]{1,6}$/.test(text)) return Number(text)
  throw usageError(`--count: ${JSON.stringify(text)} is not a count`)
}

export const runTranscriptsList = async (context: CliContext, line: CommandLine): Promise<number> => {
  if (line.has('terminals')) return (await recordings()).runRecordingsList(context, line, countOf(line))
  const directory = pathOf(line)
  const transcripts = await listTranscripts(directory, countOf(line))
  if (context.json) await printJson(context, { directory, transcripts })
  else for (const { name, commands } of transcripts) await printLine(context, `${name} commands=${commands}`)
  return 0
}

const jsonOf = (line: TranscriptLine): string => {
  const { number, waits } = line
  const fields = 'entry' in line ? { line: number, waits, ...line.entry } : { line: number, problem: line.problem }
  return `${visibleJson(JSON.stringify(fields))}\n`
}

/** Renders a line as the console does or, with `--json`, as an object. */
const rendering = (context: CliContext): ((line: TranscriptLine) => string) => {
  if (context.json) return jsonOf
  const page = pageOf(context.stdout, context.env, null)
  return (line) => transcriptLineText(line, page)
}

/** `x0x transcripts search`: 0 if something was found, otherwise 1. */
export const runTranscriptsSearch = async (context: CliContext, given: CommandLine): Promise<number> => {
  const [text = '', name = null] = given.words
  if (text === '') throw usageError('nothing to search for', 'Try: x0x transcripts search TEXT')
  if (name !== null) checkName(name)
  const max = countOf(given)
  const matches: Match[] = []
  let found = 0
  let truncated = false
  for await (const match of searchTranscripts(pathOf(given), { text, name, ignoreCase: given.has('ignore-case') })) {
    truncated = found === max
    if (truncated) break
    found += 1
    if (context.json) {
      matches.push(match)
      continue
    }
    const { transcript, line, field, text_line, whoami } = match
    const place = `${transcript}:${line} ${field}:${text_line}`
    if (!(await printLine(context, shownLine(`${place}  ${whoami}  ${match.text}`)))) break
  }
  if (context.json) await printJson(context, { matches, truncated })
  else if (truncated) await printNotice(context, `only the first ${max} are shown; -n COUNT shows more`)
  return found > 0 ? 0 : 1
}

const FORMATS = ['asciicast', 'jsonl', 'text'] as const
type Format = (typeof FORMATS)[number]

const asciicast = async (context: CliContext, name: string, lines: AsyncIterable<TranscriptLine>): Promise<void> => {
  const cast = new Asciicast()
  let isFirst = true
  for await (const line of lines) {
    if (!('entry' in line)) continue
    const text = `${isFirst ? cast.header(name, line.entry) : ''}${cast.events(line.entry)}`
    isFirst = false
    if (!(await write(context.stdout, text))) return
  }
  if (isFirst) await write(context.stdout, cast.header(name, null))
}

export const runTranscriptsExport = async (context: CliContext, given: CommandLine): Promise<number> => {
  if (given.has('terminals')) return (await recordings()).runRecordingsExport(context, given)
  const [name = ''] = given.words
  checkName(name)
  const asked = given.value('format') ?? (context.json ? 'jsonl' : 'asciicast')
  const format = FORMATS.find((one) => one === asked)
  if (format === undefined) throw usageError(`--format: unknown format ${JSON.stringify(asked)}`, `Use one of ${FORMATS.join(', ')}`)
  const lines = readTranscript(pathOf(given), name)
  if (format === 'asciicast') await asciicast(context, name, lines)
  else for await (const line of lines) if (!(await write(context.stdout, EXPORTED[format](line)))) break
  return 0
}

/** How to export a line that is not an entry. Only text has it, as a note. */
const EXPORTED: Readonly<Record<Exclude<Format, 'asciicast'>, (line: TranscriptLine) => string>> = {
  jsonl: (line) => ('entry' in line ? `${visibleJson(JSON.stringify(line.entry))}\n` : ''),
  text: (line) => transcriptLineText(line, FILE_PAGE),
}

export const runTranscriptsRemove = async (context: CliContext, line: CommandLine): Promise<number> => {
  if (line.has('terminals')) return (await recordings()).runRecordingsRemove(context, line)
  const names = line.words
  for (const name of names) checkName(name)
  for (const name of names) await removeTranscript(pathOf(line), name)
  if (context.json) await printJson(context, { removed: names })
  return 0
}

/** `x0x transcripts print` and `follow`: 0, also after Ctrl-C. */
export const runTranscriptsPrint = async (context: CliContext, given: CommandLine): Promise<number> => {
  if (given.has('terminals')) return (await recordings()).runRecordingsPrint(context, given)
  const [named = null] = given.words
  if (named !== null) checkName(named)
  const directory = pathOf(given)
  const name = named ?? (await newestTranscript(directory))
  const rendered = rendering(context)
  return untilEnded(context, async (signal) => {
    const follows = given.command === 'transcripts follow' || given.has('follow')
    const lines = follows ? followTranscript(directory, name, signal) : readTranscript(directory, name, signal)
    for await (const line of lines) if (!(await write(context.stdout, rendered(line)))) break
  })
}
