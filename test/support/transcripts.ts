import { mkdir, readFile, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { readTranscript, type TranscriptLine } from '../../src/transcripts/read.ts'
import type { TranscriptEntry } from '../../src/protocol/console/transcript.ts'
import { TranscriptOutput, type EndedCommand, type RecordedOutput } from '../../src/protocol/console/transcript.ts'
import { tempDir } from './temp-dir.ts'

export const outputOf = (text: string, ms = 5): RecordedOutput => {
  const output = new TranscriptOutput()
  output.push(text, ms)
  return output.recorded()
}

/** A finished command as a console knows it. Its output is `text`. */
export const endedCommand = (text: string, other: Partial<EndedCommand> = {}): EndedCommand => ({
  whoami: 'Codex',
  dir: '/srv',
  envs: {},
  exec: ['echo', text],
  exit: 0,
  error: null,
  startedAt: Date.UTC(2026, 4, 21, 9, 42, 18, 120),
  duration_ms: 7,
  output: outputOf(text),
  ...other,
})

export const entry = (other: Partial<TranscriptEntry> = {}): TranscriptEntry => ({
  whoami: 'Codex',
  dir: '/srv',
  envs: {},
  exec: ['id', '-un'],
  exit: 0,
  output: 'alice\n',
  time: '2026-05-21T09:42:24Z',
  ...other,
})

/** A private directory inside the test's temporary directory. */
export const transcriptsDirectory = async (t: TestContext): Promise<string> => join(await tempDir(t), 'transcripts')

/** Writes a transcript with these lines, which are entries or raw text. Each entry ends with a line feed. */
export const transcriptOf = async (directory: string, name: string, lines: readonly (TranscriptEntry | string)[]): Promise<string> => {
  await mkdir(directory, { recursive: true, mode: 0o700 })
  const path = join(directory, `${name}.jsonl`)
  await writeFile(path, lines.map((line) => (typeof line === 'string' ? line : `${JSON.stringify(line)}\n`)).join(''), { mode: 0o600 })
  return path
}

export const linesIn = async (directory: string, name: string): Promise<TranscriptLine[]> => {
  const lines: TranscriptLine[] = []
  for await (const line of readTranscript(directory, name)) lines.push(line)
  return lines
}

export const outputsIn = async (directory: string, name: string): Promise<string[]> =>
  (await linesIn(directory, name)).map((line) => ('entry' in line ? line.entry.output : `(${line.problem})`))

/** The entries in the file alone, as any reader of JSON lines sees them. */
export const entriesInFile = async (path: string): Promise<TranscriptEntry[]> =>
  (await readFile(path, 'utf8'))
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as TranscriptEntry)
