import { isAppError } from '../base/errors.ts'
import type { TranscriptEntry } from '../protocol/transcript-entry.ts'
import { type TranscriptLine, readTranscript } from './read-transcript.ts'
import { transcriptNames } from './transcript-directory.ts'

/** Characters around a match that are shown of its line. */
const AROUND = 120

export interface Sought {
  /** Plain text, not empty. */
  readonly text: string
  readonly ignoreCase: boolean
  /** Only in this transcript; null: in all. */
  readonly name: string | null
}

/** One line that holds what was sought. */
export interface Match {
  readonly transcript: string
  /** Of the entry in it, from 1. */
  readonly line: number
  readonly time: string
  readonly whoami: string
  readonly field: 'whoami' | 'dir' | 'envs' | 'exec' | 'output' | 'error'
  /** Of a field's text, from 1. */
  readonly text_line: number
  /** That line, cut around the match where it is long. */
  readonly text: string
}

const countFeeds = (text: string, from: number, to: number): number => {
  let count = 0
  for (let at = text.indexOf('\n', from); at !== -1 && at < to; at = text.indexOf('\n', at + 1)) count += 1
  return count
}

/** In small letters, but for a character that has more or fewer of them: places in both texts are the same. */
const folded = (text: string): string => {
  const whole = text.toLowerCase()
  return whole.length === text.length
    ? whole
    : [...text].map((one) => (one.toLowerCase().length === one.length ? one.toLowerCase() : one)).join('')
}

/** The lines of a text that hold what is sought, each once, as they stand there. */
function* linesWith(shown: string, { text: wanted, ignoreCase }: Sought): Generator<{ readonly number: number; readonly text: string }> {
  const [text, sought] = ignoreCase ? [folded(shown), folded(wanted)] : [shown, wanted]
  let number = 1
  let counted = 0
  for (let at = text.indexOf(sought); at !== -1;) {
    number += countFeeds(text, counted, at)
    counted = at
    const begin = text.lastIndexOf('\n', at - 1) + 1
    const end = text.indexOf('\n', at + sought.length)
    const [first, last] = [Math.max(begin, at - AROUND), Math.min(end === -1 ? text.length : end, at + sought.length + AROUND)]
    yield { number, text: shown.slice(first, last) }
    at = end === -1 ? -1 : text.indexOf(sought, end + 1)
  }
}

const fieldsOf = ({ whoami, dir, envs, exec, output, error = '' }: TranscriptEntry): [Match['field'], string][] => [
  ['whoami', whoami],
  ['dir', dir],
  ['exec', exec.join(' ')],
  ['envs', Object.keys(envs).join(' ')],
  ['output', output],
  ['error', error],
]

/** The lines of a transcript; of one among others, none where it was removed meanwhile. */
async function* linesOf(directory: string, transcript: string, isNamed: boolean): AsyncGenerator<TranscriptLine> {
  try {
    yield* readTranscript(directory, transcript)
  } catch (error) {
    if (isNamed || !isAppError(error, 'not_found')) throw error
  }
}

/** All lines of all entries that hold a text, the newest transcript first. Throws as `readTranscript`. */
export async function* searchTranscripts(directory: string, sought: Sought): AsyncGenerator<Match> {
  const { name } = sought
  for (const transcript of name === null ? await transcriptNames(directory) : [name])
    for await (const line of linesOf(directory, transcript, name !== null)) {
      if (!('entry' in line)) continue
      const { time, whoami } = line.entry
      for (const [field, value] of fieldsOf(line.entry))
        for (const found of linesWith(value, sought))
          yield { transcript, line: line.number, time, whoami, field, text_line: found.number, text: found.text }
    }
}
