import type { TranscriptLine } from '../../../audit/transcripts/read-transcript.ts'
import { checkName } from '../../../audit/transcripts/transcript-names.ts'
import { Transcripts } from '../../../audit/transcripts/transcripts.ts'
import { visibleJson } from '../../../base/visible-text.ts'
import { entryText, noteText } from '../../../doors/console/entry-text.ts'
import type { CliContext } from '../context.ts'
import { usageError } from '../failure.ts'
import { painter, printJson, printLine, untilEnded, write } from '../print.ts'

/** As typed: `--dir`; null for the place of all consoles. */
type Directory = string | null

const countOf = (text: string, flag: string): number => {
  if (/^[0-9]{1,6}$/.test(text)) return Number(text)
  throw usageError(`${flag}: ${JSON.stringify(text)} is not a count`)
}

/** `x0x transcripts list`. */
export const runTranscriptsList = async (
  context: CliContext,
  options: { readonly dir: Directory; readonly count: string },
): Promise<number> => {
  const transcripts = new Transcripts(options.dir)
  const newest = await transcripts.list(countOf(options.count, '--count'))
  if (context.json) await printJson(context, { directory: transcripts.directory, transcripts: newest })
  else for (const { name, commands } of newest) await printLine(context, `${name} commands=${commands}`)
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
  const paint = painter(context.stdout, context.env)
  return (line) =>
    'entry' in line
      ? entryText(line.entry, (banner) => paint('bold', banner))
      : `${noteText(`line ${line.number} is no entry: ${line.problem}`)}\n\n`
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
  const transcripts = new Transcripts(options.dir)
  const name = options.name ?? (await transcripts.newest())
  const rendered = rendering(context)
  return untilEnded(context, async (signal) => {
    const lines = options.follow ? transcripts.follow(name, signal) : transcripts.read(name, signal)
    for await (const line of lines) if (!(await write(context.stdout, rendered(line)))) break
  })
}
