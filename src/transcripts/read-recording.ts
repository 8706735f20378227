import type { FileHandle } from 'node:fs/promises'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { AppError } from '../base/errors.ts'
import { LineReader } from '../journal/read.ts'
import { type CastEvent, parseCastEvent, parseCastHeader } from '../protocol/console/asciicast.ts'
import { isTable, isText } from '../protocol/json-table.ts'
import { LINE_FEED } from '../protocol/lines.ts'
import { openTranscriptFile } from './directory.ts'
import { recordingFile, recordingNames } from './recordings.ts'

/** Longest line. An event has at most 80 KiB of text, whose characters may take six bytes each. */
const MAX_RECORDING_LINE = 1024 * 1024
/** The last event is within these bytes. */
const TAIL_BYTES = MAX_RECORDING_LINE

/** What the header of a recording says. Fields are checked, because anybody may have written the file. */
export interface RecordingFacts {
  readonly agent_id: string | null
  readonly request_id: string | null
  readonly argv: readonly string[]
  readonly started_at: string | null
  readonly width: number
  readonly height: number
}

export interface RecordingSummary extends RecordingFacts {
  readonly name: string
  readonly bytes: number
  /** Time of the last event. */
  readonly duration_ms: number
}

const isSide = (value: unknown): value is number => Number.isSafeInteger(value) && Number(value) >= 1 && Number(value) <= 10_000

const factsOf = (header: Readonly<Record<string, unknown>>): RecordingFacts => {
  const { width, height, timestamp, x0x } = header
  const about = isTable(x0x) ? x0x : {}
  const { agent_id, request_id, argv } = about
  return {
    agent_id: isText(agent_id) ? agent_id : null,
    request_id: isText(request_id) ? request_id : null,
    argv: Array.isArray(argv) && argv.every(isText) ? argv : [],
    started_at: typeof timestamp === 'number' && timestamp >= 0 && timestamp < 1e11 ? new Date(timestamp * 1_000).toISOString() : null,
    width: isSide(width) ? width : 80,
    height: isSide(height) ? height : 24,
  }
}

/** Throws `not_found`, `bad_request`, `loose_permissions`. */
const openRecording = async (directory: string, name: string): Promise<FileHandle> => {
  const file = await openTranscriptFile(directory, recordingFile(name))
  if (file !== null) return file
  throw new AppError('not_found', `no recording ${name} in ${directory}`, { data: { next: 'Try: x0x transcripts list --terminals' } })
}

/** The events of a recording in order. Lines that are not events, such as a torn last one, are left out. Throws as `openRecording`. */
export async function* readRecording(directory: string, name: string, signal?: AbortSignal): AsyncGenerator<CastEvent> {
  const file = await openRecording(directory, name)
  try {
    for await (const lines of new LineReader(file, 0, MAX_RECORDING_LINE).lines())
      for (const line of lines) {
        signal?.throwIfAborted()
        const event = line === 'too_long' ? null : parseCastEvent(line)
        if (event !== null) yield event
      }
  } finally {
    await file.close()
  }
}

/** The bytes of a recording in order. Throws as `openRecording`. */
export async function* recordingBytes(directory: string, name: string): AsyncGenerator<Uint8Array> {
  const file = await openRecording(directory, name)
  try {
    for await (const chunk of file.createReadStream({ autoClose: false })) yield chunk as Uint8Array
  } finally {
    await file.close()
  }
}

const headerOf = async (file: FileHandle): Promise<RecordingFacts> => {
  for await (const [line] of new LineReader(file, 0, MAX_RECORDING_LINE).lines()) {
    const header = line === undefined || line === 'too_long' ? null : parseCastHeader(line)
    return factsOf(header ?? {})
  }
  return factsOf({})
}

const lastMs = async (file: FileHandle, size: number): Promise<number> => {
  const length = Math.min(size, TAIL_BYTES)
  const { buffer, bytesRead } = await file.read(Buffer.alloc(length), 0, length, size - length)
  const tail = buffer.subarray(0, bytesRead)
  let end = tail.lastIndexOf(LINE_FEED)
  while (end > 0) {
    const begin = tail.lastIndexOf(LINE_FEED, end - 1)
    const event = parseCastEvent(tail.subarray(begin + 1, end))
    if (event !== null) return Math.round(event.ms)
    end = begin
  }
  return 0
}

/** Throws as `openRecording`. */
export const recordingFacts = async (directory: string, name: string): Promise<RecordingSummary> => {
  const file = await openRecording(directory, name)
  try {
    const { size } = await file.stat()
    return { name, bytes: size, duration_ms: await lastMs(file, size), ...(await headerOf(file)) }
  } finally {
    await file.close()
  }
}

/** The newest recordings, newest first. Throws `loose_permissions`. */
export const listRecordings = async (directory: string, count: number): Promise<RecordingSummary[]> => {
  const summaries: RecordingSummary[] = []
  for (const name of (await recordingNames(directory)).slice(0, count)) summaries.push(await recordingFacts(directory, name))
  return summaries
}

/** Name of the newest recording. Throws `not_found` if absent, and `loose_permissions`. */
export const newestRecording = async (directory: string): Promise<string> => {
  const [newest] = await recordingNames(directory)
  if (newest !== undefined) return newest
  throw new AppError('not_found', `no recordings in ${directory}`, { data: { next: 'a command with record = true in the ACL makes them' } })
}

/** Removes one recording. A command that is still recorded into it is ended. Throws as `openRecording`. */
export const removeRecording = async (directory: string, name: string): Promise<void> => {
  await (await openRecording(directory, name)).close()
  await rm(join(directory, recordingFile(name)), { force: true })
}
