import { AppError, isAppError } from '../base/errors.ts'
import { LineReader } from '../journal/read-lines.ts'
import { MAX_TRANSCRIPT_LINE } from '../protocol/transcript-limits.ts'
import { openTranscript, readTranscript } from './read-transcript.ts'
import { openTranscriptFile, transcriptNames } from './transcript-directory.ts'
import { filesOf } from './transcript-names.ts'

export interface TranscriptSummary {
  readonly name: string
  readonly commands: number
  readonly bytes: number
}

/** Some commands wait for an earlier one, or had moved when their host was killed. */
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

/** A console removes the oldest when it begins. */
const ifRemoved = (error: unknown): null => {
  if (isAppError(error, 'not_found')) return null
  throw error
}

/** The newest transcripts, newest first. A missing directory has none; throws `loose_permissions`. */
export const listTranscripts = async (directory: string, count: number): Promise<TranscriptSummary[]> => {
  const summaries: TranscriptSummary[] = []
  for (const name of await transcriptNames(directory)) {
    if (summaries.length >= count) break
    const summary = await summaryOf(directory, name).catch(ifRemoved)
    if (summary !== null) summaries.push(summary)
  }
  return summaries
}

/** The name of the newest transcript. Throws `not_found` where there is none, and `loose_permissions`. */
export const newestTranscript = async (directory: string): Promise<string> => {
  const [newest] = await transcriptNames(directory)
  if (newest !== undefined) return newest
  throw new AppError('not_found', `there are no transcripts in ${directory}`, { data: { next: 'a console makes them' } })
}
