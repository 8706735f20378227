import { visibleJson } from '../base/visible-text.ts'
import { HIDDEN_VALUE, type TranscriptEntry } from '../protocol/transcript-entry.ts'
import { CUT_ARGV, MAX_TRANSCRIPT_LINE } from '../protocol/transcript-limits.ts'
import type { EndedCommand } from '../protocol/transcript-output.ts'

const lineOf = (entry: TranscriptEntry): Buffer => Buffer.from(`${visibleJson(JSON.stringify(entry))}\n`)

const cutWords = (words: readonly string[]): string[] => words.slice(0, CUT_ARGV.words).map((word) => word.slice(0, CUT_ARGV.characters))

/** Facts about its place in the transcript. */
export type Placing = Pick<TranscriptEntry, 'arrival' | 'missing_before'>

/** A command as the line of its transcript, which is never longer than readers take. */
export const encodeEntry = (command: EndedCommand, placing: Placing, { recordEnv }: { readonly recordEnv: boolean }): Buffer => {
  const { whoami, dir, envs, exec, exit, error, startedAt, duration_ms, output, ran_on, descendants_ended } = command
  const started_at = new Date(startedAt).toISOString()
  const hidden = (): Record<string, string> => Object.fromEntries(Object.keys(envs).map((name) => [name, HIDDEN_VALUE]))
  const entry: TranscriptEntry = {
    whoami,
    dir,
    envs: recordEnv ? envs : hidden(),
    exec,
    exit,
    output: output.text,
    ...(error === null ? {} : { error }),
    time: `${started_at.slice(0, 19)}Z`,
    started_at,
    duration_ms: Math.max(0, Math.round(duration_ms)),
    output_bytes: output.bytes,
    output_truncated: output.truncated,
    timing: output.timing,
    ...(ran_on && { ran_on }),
    ...(descendants_ended !== undefined && { descendants_ended }),
    ...placing,
  }
  const line = lineOf(entry)
  if (line.length <= MAX_TRANSCRIPT_LINE) return line
  const cut = { exec: cutWords(exec), exec_truncated: true, envs: {}, output: '', output_truncated: true, timing: [] }
  return lineOf({ ...entry, ...cut, whoami: whoami.slice(0, CUT_ARGV.characters), dir: dir.slice(0, CUT_ARGV.characters) })
}

/** A line that says as well which transcript it goes on from. */
export const continuing = (line: Buffer, name: string): Buffer =>
  Buffer.concat([line.subarray(0, -2), Buffer.from(`,"continues":${JSON.stringify(name)}}\n`)])
