import type { Clock } from '../../base/clock.ts'
import { AppError } from '../../base/errors.ts'
import { followTranscript } from './follow-transcript.ts'
import { listTranscripts, type TranscriptSummary } from './list-transcripts.ts'
import { readTranscript, type TranscriptLine } from './read-transcript.ts'
import { removeTranscript } from './remove-transcripts.ts'
import { searchTranscripts, type Match, type Sought } from './search-transcripts.ts'
import { transcriptNames, transcriptsDir } from './transcript-directory.ts'
import { TranscriptWriter, type TranscriptWriterInit } from './transcript-writer.ts'

/** The transcripts of one user. Everything but `begin` takes a directory that is missing for an empty one; all throw `loose_permissions`. */
export class Transcripts {
  readonly directory: string

  /** `directory`: null for the one that all consoles of this user have. */
  constructor(directory: string | null) {
    this.directory = directory ?? transcriptsDir()
  }

  /** As `TranscriptWriter.begin`. */
  async begin(components: { readonly clock: Clock }, init: Omit<TranscriptWriterInit, 'directory'>): Promise<TranscriptWriter> {
    return TranscriptWriter.begin(components, { ...init, directory: this.directory })
  }

  /** So many of the newest, newest first. */
  async list(count: number): Promise<TranscriptSummary[]> {
    return listTranscripts(this.directory, count)
  }

  /** Throws `not_found` where there is none. */
  async newest(): Promise<string> {
    const [newest] = await transcriptNames(this.directory)
    if (newest !== undefined) return newest
    throw new AppError('not_found', `there are no transcripts in ${this.directory}`, { data: { next: 'a console makes them' } })
  }

  /** As `readTranscript`. */
  read(name: string, signal?: AbortSignal): AsyncGenerator<TranscriptLine> {
    return readTranscript(this.directory, name, signal)
  }

  /** As `followTranscript`. */
  follow(name: string, signal: AbortSignal): AsyncGenerator<TranscriptLine> {
    return followTranscript(this.directory, name, signal)
  }

  /** As `searchTranscripts`. */
  search(sought: Sought): AsyncGenerator<Match> {
    return searchTranscripts(this.directory, sought)
  }

  /** As `removeTranscript`. */
  async remove(name: string): Promise<void> {
    await removeTranscript(this.directory, name)
  }
}
