import type { FileHandle } from 'node:fs/promises'
import { AppError } from '../base/errors.ts'
import { LineReader } from '../journal/read.ts'
import { type ParsedEntry, type TranscriptEntry, parseEntry } from '../protocol/console/transcript.ts'
import { MAX_TRANSCRIPT_LINE, MAX_WAITING_BYTES } from '../protocol/limits/tools.ts'
import type { Line } from '../protocol/lines.ts'
import { filesOf, openTranscriptFile } from './directory.ts'

/** One line of a transcript: an entry, or why it is invalid. */
export type TranscriptLine = ParsedEntry & {
  /** From 1. Waiting entries continue the numbers of the file. */
  readonly number: number
  /** True if an earlier command had not ended at the last write. */
  readonly waits: boolean
}

/** Bound of waiting entries, whatever the file contains. */
const MAX_WAITING_READ = 2 * MAX_WAITING_BYTES

export const parsedLine = (line: Line): ParsedEntry =>
  line === 'too_long' ? { problem: `it is longer than ${MAX_TRANSCRIPT_LINE} bytes` } : parseEntry(line)

/** Throws `not_found`. */
export const openTranscript = async (directory: string, name: string): Promise<FileHandle> => {
  const file = await openTranscriptFile(directory, filesOf(name).entries)
  if (file !== null) return file
  const next = 'to list them: x0x transcripts list'
  throw new AppError('not_found', `no transcript ${name} in ${directory}`, { data: { next } })
}

/** Waiting entries with a number above `after`. */
const waitingEntries = async (directory: string, name: string): Promise<TranscriptEntry[]> => {
  const file = await openTranscriptFile(directory, filesOf(name).waiting)
  if (file === null) return []
  const found: TranscriptEntry[] = []
  const reader = new LineReader(file, 0, MAX_TRANSCRIPT_LINE)
  try {
    for await (const lines of reader.lines()) {
      for (const line of lines) {
        const parsed = parsedLine(line)
        if ('entry' in parsed) found.push(parsed.entry)
      }
      if (reader.position > MAX_WAITING_READ) break
    }
  } finally {
    await file.close()
  }
  return found.sort((one, other) => (one.arrival ?? 0) - (other.arrival ?? 0))
}

/**
 * The lines of a transcript in order: those of its file, then entries that wait for an earlier command that has not ended or whose console
 * was killed. Uses bounded memory for any files. Throws `not_found`, `bad_request`, `loose_permissions`.
 */
export async function* readTranscript(directory: string, name: string, signal?: AbortSignal): AsyncGenerator<TranscriptLine> {
  const file = await openTranscript(directory, name)
  const reader = new LineReader(file, 0, MAX_TRANSCRIPT_LINE)
  let number = 0
  let last = -1
  const numbered = (parsed: ParsedEntry, waits = false): TranscriptLine => {
    if (!waits && 'entry' in parsed) last = Math.max(last, parsed.entry.arrival ?? -1)
    number += 1
    return { ...parsed, number, waits }
  }
  try {
    for await (const lines of reader.lines()) {
      for (const line of lines) yield numbered(parsedLine(line))
      signal?.throwIfAborted()
    }
    const waiting = await waitingEntries(directory, name)
    // Some entries may have moved into the file since it was read.
    for await (const lines of reader.lines()) for (const line of lines) yield numbered(parsedLine(line))
    const rest = reader.rest()
    if (rest !== null) yield numbered({ problem: 'it is incomplete: the host ended while it wrote it, or is writing it now' })
    for (const entry of waiting.filter(({ arrival = 0 }) => arrival > last)) yield numbered({ entry }, true)
  } finally {
    await file.close()
  }
}
