import { lstatSync } from 'node:fs'
import { rm } from 'node:fs/promises'
import { join } from 'node:path'
import { MAX_TRANSCRIPTS } from '../protocol/transcript-limits.ts'
import { openTranscript } from './read-transcript.ts'
import { transcriptNames } from './transcript-directory.ts'
import { filesOf } from './transcript-names.ts'

const pathsOf = (directory: string, name: string): string[] => Object.values(filesOf(name)).map((file) => join(directory, file))

/** Removes one transcript. Throws `not_found`, and whatever `openTranscript` does. */
export const removeTranscript = async (directory: string, name: string): Promise<void> => {
  await (await openTranscript(directory, name)).close()
  for (const path of pathsOf(directory, name)) await rm(path, { force: true })
}

const sizeOf = (path: string): number => lstatSync(path, { throwIfNoEntry: false })?.size ?? 0

/** Removes the oldest transcripts until all together have no more than `max` bytes; `keep` stays. Answers their names, oldest first. */
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
