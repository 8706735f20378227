import { isVisible, replaceInvisible, shown, shownLine } from '../../base/visible-text.ts'
import { shellWord } from '../../base/shell-word.ts'
import type { TranscriptEntry } from '../../protocol/transcript-entry.ts'

/** What a banner says of a command. */
export type Banner = Pick<TranscriptEntry, 'time' | 'whoami' | 'dir' | 'exec'>

const PLAIN_NAME = /^[\p{L}\p{N}][\p{L}\p{M}\p{N}_.@+\- ]*$/u
const PLAIN_PATH = /^[\p{L}\p{M}\p{N}_.@+\-/~ %,=]+$/u

const NAMED_ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', "'": "\\'", '\n': '\\n', '\t': '\\t', '\r': '\\r' }

const escaped = (character: string): string => {
  const named = NAMED_ESCAPES[character]
  if (named !== undefined) return named
  const code = character.codePointAt(0) ?? 0
  return code <= 0xffff ? `\\u${code.toString(16).padStart(4, '0')}` : `\\U${code.toString(16).padStart(8, '0')}`
}

/** One word of a command line that can be read in one way only, and pasted into bash; `$'…'` where a character hides. */
const word = (text: string): string =>
  isVisible(text) ? shellWord(text) : `$'${replaceInvisible(text.replaceAll(/[\\']/g, escaped), escaped)}'`

/** The one line in front of a command's output; whatever its parts hold, it reads in one way. */
export const bannerText = ({ time, whoami, dir, exec }: Banner): string => {
  const who = PLAIN_NAME.test(whoami) ? whoami : word(whoami)
  const where = PLAIN_PATH.test(dir) ? dir : word(dir)
  return `[${shownLine(time)}] ${who}:${where} $ ${exec.map(word).join(' ')}`
}

/** What we say ourselves among output. */
export const noteText = (note: string): string => `[… ${shownLine(note)}]`

/** A line of output that could be taken for a banner or a note of ours; with one more `>` it is none, and reads back. */
const LIKE_OURS = /^(?=>*\[(?:\d{4}-\d\d-\d\dT|… ))/gm

/** Output as a terminal may show it: nothing that it obeys, no line that passes for one of ours, and a line feed at its end. */
export const outputText = (output: string): string => {
  const text = shown(output).replaceAll(LIKE_OURS, '>')
  return text === '' || text.endsWith('\n') ? text : `${text}\n`
}

const endNote = ({ exit, error }: TranscriptEntry): string =>
  exit === 0 && error === undefined ? '' : `${noteText(`exit ${exit}${error === undefined ? '' : `: ${error}`}`)}\n`

const missingNote = ({ missing_before: count = 0 }: TranscriptEntry): string =>
  count === 0 ? '' : `${noteText(`${count} before this could not be written`)}\n`

/** A command as the console shows it, with the blank line behind it. `paint`: for banners, where they go to a terminal. */
export const entryText = (entry: TranscriptEntry, paint: (banner: string) => string = (banner) => banner): string =>
  `${missingNote(entry)}${paint(bannerText(entry))}\n${outputText(entry.output)}${endNote(entry)}\n`
