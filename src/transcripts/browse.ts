import { lstatSync } from 'node:fs'
import { type FileHandle, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { AppError, isAppError } from '../base/errors.ts'
import { LineReader } from '../journal/read.ts'
import type { TranscriptEntry } from '../protocol/console/transcript.ts'
import { MAX_TRANSCRIPTS, MAX_TRANSCRIPT_LINE } from '../protocol/limits/tools.ts'
import { filesOf, openTranscriptFile, transcriptNames } from './directory.ts'
import { type TranscriptLine, openTranscript, parsedLine, readTranscript } from './read.ts'

export interface TranscriptSummary {
  readonly name: string
  readonly commands: number
  readonly bytes: number
}

/** True if commands wait for an earlier one, or had been moved when their console was killed. */
const hasWaiting = async (directory: string, name: string): Promise<boolean> => {
  const file = await openTranscriptFile(directory, filesOf(name).waiting)
  if (file === null) return false
  const { size } = await file.stat()
  await file.close()
  return size > 0
}

const summaryOf = async (directory: string, name: string): Promise<TranscriptSummary> => {
  const file = await openTranscript(directory, name)
  try {
    const { size } = await file.stat()
    let commands = 0
    if (await hasWaiting(directory, name)) {
      for await (const line of readTranscript(directory, name)) if ('entry' in line) commands += 1
    } else for await (const lines of new LineReader(file, 0, MAX_TRANSCRIPT_LINE).lines()) commands += lines.length
    return { name, commands, bytes: size }
  } finally {
    await file.close()
  }
}

/** Another console may remove the oldest transcripts at its start. */
const ifRemoved = (error: unknown): null => {
  if (isAppError(error, 'not_found')) return null
  throw error
}

/** The newest transcripts, newest first. Empty for a missing directory. Throws `loose_permissions`. */
export const listTranscripts = async (directory: string, count: number): Promise<TranscriptSummary[]> => {
  const summaries: TranscriptSummary[] = []
  for (const name of await transcriptNames(directory)) {
    if (summaries.length >= count) break
    const summary = await summaryOf(directory, name).catch(ifRemoved)
    if (summary !== null) summaries.push(summary)
  }
  return summaries
}

/** Name of the newest transcript. Throws `not_found` if absent, and `loose_permissions`. */
export const newestTranscript = async (directory: string): Promise<string> => {
  const [newest] = await transcriptNames(directory)
  if (newest !== undefined) return newest
  throw new AppError('not_found', `no transcripts in ${directory}`, { data: { next: 'a console makes them' } })
}

const pathsOf = (directory: string, name: string): string[] => Object.values(filesOf(name)).map((file) => join(directory, file))

/** Removes one transcript. Throws `not_found`, and the errors of `openTranscript`. */
export const removeTranscript = async (directory: string, name: string): Promise<void> => {
  await (await openTranscript(directory, name)).close()
  for (const path of pathsOf(directory, name)) await rm(path, { force: true })
}

const sizeOf = (path: string): number => lstatSync(path, { throwIfNoEntry: false })?.size ?? 0

/** Removes the oldest transcripts, except `keep`, until all together have at most `max` bytes. Returns their names, oldest first. */
export const removeOldest = async (directory: string, keep: string | null, max = MAX_TRANSCRIPTS): Promise<string[]> => {
  const removed: string[] = []
  let total = 0
  for (const name of await transcriptNames(directory)) {
    const files = pathsOf(directory, name)
    total += files.reduce((sum, path) => sum + sizeOf(path), 0)
    if (total <= max || name === keep) continue
    for (const path of files) await rm(path, { force: true })
    removed.unshift(name)
  }
  return removed
}

/** Displayed characters of a line around a match. */
const AROUND = 120

export interface Sought {
  /** Plain text, not empty. */
  readonly text: string
  readonly ignoreCase: boolean
  /** Transcript to search, or null for all. */
  readonly name: string | null
}

export interface Match {
  readonly transcript: string
  /** Number of the entry in the transcript, from 1. */
  readonly line: number
  readonly time: string
  readonly whoami: string
  readonly field: 'whoami' | 'dir' | 'envs' | 'exec' | 'output' | 'error'
  /** Number of the line in the field's text, from 1. */
  readonly text_line: number
  /** The line, cut around the match if it is long. */
  readonly text: string
}

const countFeeds = (text: string, from: number, to: number): number => {
  let count = 0
  for (let at = text.indexOf('\n', from); at !== -1 && at < to; at = text.indexOf('\n', at + 1)) count += 1
  return count
}

/** Lower case, except for characters whose lower case has another length, so that offsets in both texts are equal. */
const folded = (text: string): string => {
  const whole = text.toLowerCase()
  return whole.length === text.length
    ? whole
    : [...text].map((one) => (one.toLowerCase().length === one.length ? one.toLowerCase() : one)).join('')
}

/** The lines of a text that contain the searched text, each once, in their original form. */
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

/** The lines of a transcript. When searching several, one that was removed meanwhile has none. */
async function* linesOf(directory: string, transcript: string, isNamed: boolean): AsyncGenerator<TranscriptLine> {
  try {
    yield* readTranscript(directory, transcript)
  } catch (error) {
    if (isNamed || !isAppError(error, 'not_found')) throw error
  }
}

/** All lines of all entries that contain a text, the newest transcript first. Throws as `readTranscript`. */
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

/** Polling interval of a followed transcript. */
const POLL_MS = 200

/** Reads the further lines of one file. If its writer cut off a torn line, reads again from its beginning. */
class Following {
  readonly #file: FileHandle
  #reader: LineReader
  #number = 0

  constructor(file: FileHandle) {
    this.#file = file
    this.#reader = new LineReader(file, 0, MAX_TRANSCRIPT_LINE)
  }

  async *lines(): AsyncGenerator<TranscriptLine> {
    const { size } = await this.#file.stat()
    if (size < this.#reader.position) this.#reader = new LineReader(this.#file, size, MAX_TRANSCRIPT_LINE)
    for await (const lines of this.#reader.lines())
      for (const line of lines) yield { ...parsedLine(line), number: ++this.#number, waits: false }
  }
}

/** Null if the transcript does not exist; another console may remove it at any moment. */
const firstLine = async (directory: string, name: string): Promise<TranscriptLine | null> => {
  const file = await openTranscriptFile(directory, filesOf(name).entries)
  if (file === null) return null
  try {
    for await (const line of new Following(file).lines()) return line
    return null
  } finally {
    await file.close()
  }
}

/** The transcript that continues this one. `others`: newer ones that do not, which are not read again. */
const continuationOf = async (directory: string, name: string, others: Set<string>): Promise<string | null> => {
  const newer = (await transcriptNames(directory)).filter((other) => other > name && !others.has(other))
  for (const other of newer.reverse()) {
    const first = await firstLine(directory, other)
    if (first === null) continue
    if ('entry' in first && first.entry.continues === name) return other
    others.add(other)
  }
  return null
}

/** The present and future lines of a transcript, with its continuations in other files, until the signal. Throws as `readTranscript`. */
export async function* followTranscript(directory: string, name: string, signal: AbortSignal): AsyncGenerator<TranscriptLine> {
  for (let at: string | null = name; at !== null && !signal.aborted;) {
    const file = await openTranscript(directory, at)
    const following = new Following(file)
    const others = new Set<string>()
    let next: string | null = null
    try {
      while (!signal.aborted) {
        yield* following.lines()
        if (next !== null) break
        next = await continuationOf(directory, at, others)
        // Lines written before the continuation began are read first.
        if (next === null) await sleep(POLL_MS, undefined, { signal }).catch(() => {})
      }
    } finally {
      await file.close()
    }
    at = next
  }
}
