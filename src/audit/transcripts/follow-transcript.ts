import type { FileHandle } from 'node:fs/promises'
import { setTimeout as sleep } from 'node:timers/promises'

import { MAX_TRANSCRIPT_LINE } from '../../protocol/transcript-limits.ts'
import { LineReader } from '../read-lines.ts'
import { openTranscript, parsedLine, type TranscriptLine } from './read-transcript.ts'
import { transcriptNames } from './transcript-directory.ts'

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

/** Finds the transcript that says it goes on from this one; looks into each newer one once. */
class Continuation {
  readonly #directory: string
  readonly #name: string
  readonly #others = new Set<string>()

  constructor(directory: string, name: string) {
    this.#directory = directory
    this.#name = name
  }

  async find(): Promise<string | null> {
    const newer = (await transcriptNames(this.#directory)).filter((other) => other > this.#name && !this.#others.has(other))
    for (const other of newer.reverse()) {
      const first = await this.#firstOf(other)
      if (first === null) continue
      if ('entry' in first && first.entry.continues === this.#name) return other
      this.#others.add(other)
    }
    return null
  }

  async #firstOf(name: string): Promise<TranscriptLine | null> {
    const file = await openTranscript(this.#directory, name)
    try {
      for await (const line of new Following(file).lines()) return line
      return null
    } finally {
      await file.close()
    }
  }
}

/** The lines of a transcript and those to come, also where it goes on in another file, until the signal. Throws as `readTranscript`. */
export async function* followTranscript(directory: string, name: string, signal: AbortSignal): AsyncGenerator<TranscriptLine> {
  for (let at: string | null = name; at !== null && !signal.aborted;) {
    const file = await openTranscript(directory, at)
    const following = new Following(file)
    const continuation = new Continuation(directory, at)
    let next: string | null = null
    try {
      while (!signal.aborted) {
        yield* following.lines()
        if (next !== null) break
        next = await continuation.find()
        // What was written before the other began is read first.
        if (next === null) await sleep(POLL_MS, undefined, { signal }).catch(() => {})
      }
    } finally {
      await file.close()
    }
    at = next
  }
}
