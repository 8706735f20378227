import { followTranscript } from '../../../audit/transcripts/follow-transcript.ts'
import { listTranscripts, newestTranscript } from '../../../audit/transcripts/list-transcripts.ts'
import { readTranscript, type TranscriptLine } from '../../../audit/transcripts/read-transcript.ts'
import { removeTranscript } from '../../../audit/transcripts/remove-transcripts.ts'
import { searchTranscripts, type Match } from '../../../audit/transcripts/search-transcripts.ts'
import { transcriptsDir } from '../../../audit/transcripts/transcript-directory.ts'
import { checkName } from '../../../audit/transcripts/transcript-names.ts'
import { shownLine, visibleJson } from '../../../base/visible-text.ts'
import { Asciicast } from '../../../doors/console/asciicast.ts'
import { FILE_PAGE, pageOf, transcriptLineText } from '../../../doors/console/entry-text.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { printJson, printLine, printNotice } from '../print.ts'
import { untilEnded, write } from '../../../supervision/program-output.ts'

/** As typed: `--dir`; null for the place of all consoles. */
type Directory = string | null

const pathOf = (dir: Directory): string => dir ?? transcriptsDir()

const countOf = (text: string, flag: string): number => {
  if (/^[0-9]{1,6}$/.test(text)) return Number(text)
  throw usageError(`${flag}: ${JSON.stringify(text)} is not a count`)
}

/** `x0x transcripts list`. */
export const runTranscriptsList = async (
  context: CliContext,
  options: { readonly dir: Directory; readonly count: string },
): Promise<number> => {
  const directory = pathOf(options.dir)
  const transcripts = await listTranscripts(directory, countOf(options.count, '--count'))
  if (context.json) await printJson(context, { directory, transcripts })
  else for (const { name, commands } of transcripts) await printLine(context, `${name} commands=${commands}`)
  return 0
}

const jsonOf = (line: TranscriptLine): string => {
  const { number, waits } = line
  const fields = 'entry' in line ? { line: number, waits, ...line.entry } : { line: number, problem: line.problem }
  return `${visibleJson(JSON.stringify(fields))}\n`
}

/** What is printed of a line: as the console shows it or, with `--json`, an object on a line. */
const rendering = (context: CliContext): ((line: TranscriptLine) => string) => {
  if (context.json) return jsonOf
  const page = pageOf(context.stdout, context.env, null)
  return (line) => transcriptLineText(line, page)
}

export interface SearchOptions {
  readonly dir: Directory
  readonly text: string
  /** Null: in all. */
  readonly name: string | null
  readonly ignoreCase: boolean
  /** As typed. */
  readonly count: string
}

/** `x0x transcripts search`: 0 where something was found, else 1. */
export const runTranscriptsSearch = async (context: CliContext, options: SearchOptions): Promise<number> => {
  const { text, name, ignoreCase } = options
  if (text === '') throw usageError('nothing to search for', 'x0x transcripts search TEXT')
  if (name !== null) checkName(name)
  const max = countOf(options.count, '--count')
  const matches: Match[] = []
  let found = 0
  let truncated = false
  for await (const match of searchTranscripts(pathOf(options.dir), { text, name, ignoreCase })) {
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

export interface ExportOptions {
  readonly dir: Directory
  readonly name: string
  /** As typed; null: asciicast, or jsonl with `--json`. */
  readonly format: string | null
}

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

/** `x0x transcripts export`. */
export const runTranscriptsExport = async (context: CliContext, options: ExportOptions): Promise<number> => {
  const { name } = options
  checkName(name)
  const asked = options.format ?? (context.json ? 'jsonl' : 'asciicast')
  const format = FORMATS.find((one) => one === asked)
  if (format === undefined) throw usageError(`--format: ${JSON.stringify(asked)} is no format`, `one of ${FORMATS.join(', ')}`)
  const lines = readTranscript(pathOf(options.dir), name)
  if (format === 'asciicast') await asciicast(context, name, lines)
  else for await (const line of lines) if (!(await write(context.stdout, EXPORTED[format](line)))) break
  return 0
}

/** What is no entry is in no export of entries; text says where it stood. */
const EXPORTED: Readonly<Record<Exclude<Format, 'asciicast'>, (line: TranscriptLine) => string>> = {
  jsonl: (line) => ('entry' in line ? `${visibleJson(JSON.stringify(line.entry))}\n` : ''),
  text: (line) => transcriptLineText(line, FILE_PAGE),
}

/** `x0x transcripts remove`. */
export const runTranscriptsRemove = async (context: CliContext, dir: Directory, names: readonly string[]): Promise<number> => {
  for (const name of names) checkName(name)
  for (const name of names) await removeTranscript(pathOf(dir), name)
  if (context.json) await printJson(context, { removed: names })
  return 0
}

export interface PrintOptions {
  readonly dir: Directory
  /** As typed; null: the newest. */
  readonly name: string | null
  readonly follow: boolean
}

/** `x0x transcripts print` and `follow`: 0, also when Ctrl-C ended it. */
export const runTranscriptsPrint = async (context: CliContext, options: PrintOptions): Promise<number> => {
  if (options.name !== null) checkName(options.name)
  const directory = pathOf(options.dir)
  const name = options.name ?? (await newestTranscript(directory))
  const rendered = rendering(context)
  return untilEnded(context, async (signal) => {
    const lines = options.follow ? followTranscript(directory, name, signal) : readTranscript(directory, name, signal)
    for await (const line of lines) if (!(await write(context.stdout, rendered(line)))) break
  })
}
