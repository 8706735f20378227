import { shellWord, signalName } from '../../base/format.ts'
import type { Environment } from '../../base/runtime.ts'
import { isVisible, replaceInvisible, shown, shownLine } from '../../base/visible-text.ts'
import type { ParsedEntry, TranscriptEntry } from '../../protocol/console/transcript.ts'
import {
  type WrappedLine,
  type TextStyle,
  PLAIN_STYLE,
  isolated,
  startingLeft,
  inColourOf,
  textStyleOf,
  marksOf,
  rowsOf,
  styled,
} from './screen/cells.ts'

/** Fields of a command that its banner shows. */
type Banner = Pick<TranscriptEntry, 'time' | 'whoami' | 'dir' | 'exec'> & {
  /** Milliseconds. Absent and null mean no timeout, or an unknown one. */
  readonly timeout_ms?: number | null
}

/** Fields of a command that its end line shows. */
type Ending = Pick<TranscriptEntry, 'exit' | 'duration_ms'> & { readonly error?: string | null | undefined }

/** Style and width of the output. */
export interface Page {
  readonly look: TextStyle
  /** Width of the terminal. Null means lines are not wrapped. */
  readonly columns: number | null
}

/** Output to a text file. */
export const FILE_PAGE: Page = { look: PLAIN_STYLE, columns: null }

/** The used members of standard output. */
interface Output {
  readonly isTTY?: boolean | undefined
  readonly columns?: number | undefined
}

/** Style and width of standard output. `colour` is the value of the flags. Null means no flag. */
export const pageOf = (stdout: Output, env: Environment, colour: boolean | null): Page => {
  const isTerminal = stdout.isTTY === true
  return { look: textStyleOf({ isTerminal, env, colour }), columns: isTerminal ? (stdout.columns ?? null) : null }
}

const PLAIN_NAME = /^[\p{L}\p{N}][\p{L}\p{M}\p{N}_.@+\- ]*$/u
const PLAIN_PATH = /^(?!.* TO=)[\p{L}\p{N}_.@+\-/~%,=][\p{L}\p{M}\p{N}_.@+\-/~ %,=]*$/u
/** Blanks that look like a space, and marks that would combine with a character of the console. */
const MISLEADING = /[\u00a0\u1680\u2000-\u200a\u202f\u205f\u2800\u3000]|^\p{M}/gu
/** Characters of the command in a banner. The transcript has the rest. */
const MAX_WORDS = 4_000
const TAB_COLUMNS = 8

const NAMED_ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', "'": "\\'", '\n': '\\n', '\t': '\\t', '\r': '\\r' }

const escaped = (character: string): string => {
  const named = NAMED_ESCAPES[character]
  if (named !== undefined) return named
  const code = character.codePointAt(0) ?? 0
  return code <= 0xffff ? `\\u${code.toString(16).padStart(4, '0')}` : `\\U${code.toString(16).padStart(8, '0')}`
}

const isAsItLooks = (text: string): boolean => isVisible(text) && text.search(MISLEADING) === -1

/** One word of a command line, unambiguous and fit for bash. Invisible characters are escaped in `$'…'`. */
const word = (text: string): string =>
  isAsItLooks(text)
    ? shellWord(text)
    : `$'${replaceInvisible(text.replaceAll(/[\\']/g, escaped).replaceAll(MISLEADING, escaped), escaped)}'`

const bare = (text: string, plain: RegExp): string => {
  const beginning = text.slice(0, MAX_WORDS)
  const shown = plain.test(beginning) && isAsItLooks(beginning) ? beginning : word(beginning)
  return isolated(beginning === text ? shown : `${shown} [${text.length - beginning.length} more characters]`)
}

/** The name that an AI agent gave itself, made unambiguous. */
export const nameText = (whoami: string): string => bare(whoami, PLAIN_NAME)

/** A command line. The count of words left out stands outside all quotes, so that no word can imitate it. */
export const wordsText = (exec: readonly string[]): string => {
  const shown: string[] = []
  let left = MAX_WORDS
  for (const [at, text] of exec.entries()) {
    if (left <= 0) return `${shown.join(' ')} [${exec.length - at} more words]`
    const beginning = text.slice(0, left)
    shown.push(beginning === text ? word(text) : `${word(beginning)} [${text.length - beginning.length} more characters]`)
    left -= text.length + 1
  }
  return shown.join(' ')
}

/** A copy, so that a slice does not keep a longer text in memory. */
const copied = (text: string): string => Buffer.from(text, 'utf16le').toString('utf16le')

/** The words that `wordsText` shows, in bounded memory. */
export const firstWords = (exec: readonly string[]): string[] => {
  const words: string[] = []
  let left = MAX_WORDS
  for (const text of exec) {
    if (left <= 0) break
    words.push(copied(text.slice(0, left)))
    left -= text.length + 1
  }
  return words
}

const tenths = (ms: number): number => Math.round(ms / 100) / 10

/** The line before a command's output. No field of it can imitate another. */
export const bannerText = ({ time, whoami, dir, exec, timeout_ms }: Banner, look: TextStyle = PLAIN_STYLE): string => {
  const timeout = timeout_ms === null || timeout_ms === undefined ? '' : ` TO=${timeout_ms / 1000}`
  const who = inColourOf(look, whoami, nameText(whoami))
  return `${styled(look, 'dim', `[${shownLine(time)}]`)} ${who}:${bare(dir, PLAIN_PATH)}${timeout} $ ${styled(look, 'bold', wordsText(exec))}`
}

/** `bannerText` as a copy, for long retention. */
export const keptBanner = (banner: Banner, look: TextStyle): string => copied(bannerText(banner, look))

/** A note of the console among output. */
export const noteText = (note: string): string => `[… ${shownLine(note)}]`

/** `2.3 s`, `4 min 10 s`, `2 h 5 min`. */
export const durationText = (ms: number): string => {
  if (ms < 60_000) return `${tenths(ms)} s`
  const minutes = Math.floor(ms / 60_000)
  return minutes < 60 ? `${minutes} min ${Math.floor((ms % 60_000) / 1000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`
}

/** The line after a failed command: `└ aborted, exit 143 (SIGTERM), after 3 s`, or null after a success. */
export const endText = ({ exit, error = null, duration_ms }: Ending, look: TextStyle): string | null => {
  if (exit === 0 && error === null) return null
  const signal = exit > 128 ? signalName(exit - 128) : null
  const parts = [
    ...(error === null ? [] : [shownLine(error).replaceAll('_', ' ')]),
    `exit ${exit}${signal === null ? '' : ` (${signal})`}`,
    ...(duration_ms === undefined ? [] : [`after ${durationText(duration_ms)}`]),
  ]
  return marksOf(look).end + styled(look, 'bad', parts.join(', '))
}

/** A line of the console itself. */
export const ownLine = (text: string, look: TextStyle): WrappedLine => ({ first: '', next: marksOf(look).ownContinued, text })

const withoutTabs = (text: string): string => {
  let out = ''
  for (const character of text) out += character === '\t' ? ' '.repeat(TAB_COLUMNS - (out.length % TAB_COLUMNS)) : character
  return out
}

/** Recorded output as marked lines. */
const outputLines = (output: string, whoami: string, { look, columns }: Page): WrappedLine[] => {
  const text = shown(output)
  const lines = text === '' ? [] : (text.endsWith('\n') ? text.slice(0, -1) : text).split('\n')
  const marks = marksOf(look)
  const [first, next] = [inColourOf(look, whoami, marks.output), inColourOf(look, whoami, marks.continued)]
  return lines.map((line) => ({ first, next, text: columns === null ? line : withoutTabs(line) }))
}

export const linesText = (lines: readonly WrappedLine[], { columns }: Page): string =>
  lines
    .flatMap((line) => (columns === null ? [line.first + startingLeft(line.text)] : rowsOf(line, { columns, careful: true })))
    .map((row) => `${row}\n`)
    .join('')

/** The console's lines before and after a command's output, with a blank line at the end. */
export const linesAround = (
  entry: TranscriptEntry,
  look: TextStyle,
): { readonly before: readonly WrappedLine[]; readonly after: readonly WrappedLine[] } => {
  const { missing_before: missing = 0 } = entry
  const ended = endText(entry, look)
  const ours = (text: string): WrappedLine => ownLine(text, look)
  return {
    before: [...(missing === 0 ? [] : [ours(noteText(`${missing} earlier entries could not be written`))]), ours(bannerText(entry, look))],
    after: [...(ended === null ? [] : [ours(ended)]), ours('')],
  }
}

/** A command as the console shows it. */
export const entryText = (entry: TranscriptEntry, page: Page): string => {
  const { before, after } = linesAround(entry, page.look)
  return linesText([...before, ...outputLines(entry.output, entry.whoami, page), ...after], page)
}

/** A line of a transcript as the console shows it: a command, or the reason why it cannot be read. `number` starts at 1. */
export const transcriptLineText = (line: ParsedEntry & { readonly number: number }, page: Page): string => {
  if ('entry' in line) return entryText(line.entry, page)
  const problem = noteText(`line ${line.number} is not an entry: ${line.problem}`)
  return linesText([ownLine(problem, page.look), ownLine('', page.look)], page)
}
