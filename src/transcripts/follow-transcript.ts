import type { FileHandle } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'
import { LineReader } from '../journal/read-lines.ts'
import { MAX_TRANSCRIPT_LINE } from '../protocol/transcript-limits.ts'
import { type TranscriptLine, openTranscript, parsedLine } from './read-transcript.ts'
import { openTranscriptFile, transcriptNames } from './transcript-directory.ts'
import { filesOf } from './transcript-names.ts'

/** How often a followed transcript is looked at. */
const POLL_MS = 200

/** Reads on in one file; after its writer has cut a torn line away, from where that began. */
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

/** Null where there is none, or no more: others may be removed at any moment. */
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

/** The transcript that says it goes on from this one. `others`: newer ones that say something else, which are not looked into again. */
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

/** The lines of a transcript and those to come, also where it goes on in another file, until the signal. Throws as `readTranscript`. */
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
        // What was written before the other began is read first.
        if (next === null) await sleep(POLL_MS, undefined, { signal }).catch(() => {})
      }
    } finally {
      await file.close()
    }
    at = next
  }
}
