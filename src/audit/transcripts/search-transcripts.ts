import type { TranscriptEntry } from '../../protocol/transcript-entry.ts'
import { readTranscript } from './read-transcript.ts'
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

/** The lines of a text that hold what is sought, each once. */
function* linesWith(text: string, sought: string): Generator<{ readonly number: number; readonly text: string }> {
  let number = 1
  let counted = 0
  for (let at = text.indexOf(sought); at !== -1;) {
    number += countFeeds(text, counted, at)
    counted = at
    const begin = text.lastIndexOf('\n', at - 1) + 1
    const end = text.indexOf('\n', at + sought.length)
    const [first, last] = [Math.max(begin, at - AROUND), Math.min(end === -1 ? text.length : end, at + sought.length + AROUND)]
    yield { number, text: text.slice(first, last) }
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

/** All lines of all entries that hold a text, the newest transcript first. Throws as `readTranscript`. */
export async function* searchTranscripts(directory: string, { text, ignoreCase, name }: Sought): AsyncGenerator<Match> {
  const folded = (one: string): string => (ignoreCase ? one.toLowerCase() : one)
  for (const transcript of name === null ? await transcriptNames(directory) : [name])
    for await (const line of readTranscript(directory, transcript)) {
      if (!('entry' in line)) continue
      const { time, whoami } = line.entry
      for (const [field, value] of fieldsOf(line.entry))
        for (const found of linesWith(folded(value), folded(text)))
          yield { transcript, line: line.number, time, whoami, field, text_line: found.number, text: found.text }
    }
}
