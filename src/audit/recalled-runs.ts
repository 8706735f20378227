import { MAX_JOURNAL_KEYS } from '../protocol/tool-limits.ts'
import { isMeshEvent, type JournalLine } from './events.ts'
import { parseLine } from './parse-line.ts'
import { tailJournal } from './tail.ts'

/** How far back a key is looked for: some 40 MB of a journal, which are read once. */
const MAX_RECALLED_LINES = 50_000

const HEX_64 = /^[0-9a-f]{64}$/

/** A run that was begun with a key, as the journal tells it. */
export interface RecalledRun {
  readonly request_id: string
  readonly call_sha256: string
  /** ISO 8601. */
  readonly started_at: string
  /** Null: on a target, which does not say. */
  readonly cwd: string | null
  readonly timeout_ms: number
  /** By its target. */
  readonly timeout_clamped: boolean
  readonly timed_out: boolean
  /** `none`: no line tells its end; `lost`: its server died before it could. */
  readonly end:
    | { readonly kind: 'none' | 'lost' }
    | { readonly kind: 'refused'; readonly code: string; readonly detail: string }
    | {
        readonly kind: 'exit'
        readonly code: number | null
        readonly signal: number | null
        readonly duration_ms: number
        readonly stdout_bytes: number
        readonly stderr_bytes: number
        readonly truncated: boolean
      }
}

const begunBy = (line: JournalLine): readonly [key: string, run: RecalledRun] | null => {
  if (line.event !== 'request' || isMeshEvent(line) || line.tool === undefined) return null
  const { key_sha256, call_sha256 } = line.tool
  if (key_sha256 === null || !HEX_64.test(key_sha256) || !HEX_64.test(call_sha256)) return null
  const { request_id, ts, target, cwd, timeout_ms } = line
  const run = {
    request_id,
    call_sha256,
    started_at: ts,
    cwd: target === null ? cwd : null,
    timeout_ms,
    timeout_clamped: false,
    timed_out: false,
    end: { kind: 'none' as const },
  }
  return [key_sha256, run]
}

/** What a later line says of a run. */
const changedBy = (line: JournalLine, run: RecalledRun): RecalledRun => {
  switch (line.event) {
    case 'warning':
      return {
        ...run,
        timeout_clamped: run.timeout_clamped || line.kind === 'timeout_clamped',
        timed_out: run.timed_out || line.kind === 'duration_cap_hit',
      }
    case 'exit': {
      const { code, signal, duration_ms, stdout_bytes, stderr_bytes, truncated } = line
      return { ...run, end: { kind: 'exit', code, signal, duration_ms, stdout_bytes, stderr_bytes, truncated } }
    }
    case 'lost':
      return { ...run, end: { kind: 'lost' } }
    case 'refused':
      return { ...run, end: { kind: 'refused', code: line.code, detail: line.detail } }
    default:
      return run
  }
}

/**
 * The runs that were begun with a key, by its hash: those of the last MAX_RECALLED_LINES lines, and MAX_JOURNAL_KEYS at most. Throws
 * `not_found` where the journal cannot be read.
 */
export const recallRuns = async (path: string): Promise<ReadonlyMap<string, RecalledRun>> => {
  const runs = new Map<string, RecalledRun>()
  const keys = new Map<string, string>()
  for await (const text of tailJournal(path, { lines: MAX_RECALLED_LINES, follow: false })) {
    const id = /"request_id":"([0-9a-f-]{36})"/.exec(text)?.[1]
    if (id === undefined || !(keys.has(id) || text.includes('"key_sha256":"'))) continue
    const line = parseLine(Buffer.from(text))
    if (line === null) continue
    const begun = begunBy(line)
    const key = begun?.[0] ?? keys.get(id)
    const before = begun?.[1] ?? (key === undefined ? undefined : runs.get(key))
    if (key === undefined || before === undefined || before.request_id !== id) continue
    keys.set(id, key)
    runs.set(key, changedBy(line, before))
    const [oldest] = runs
    if (runs.size <= MAX_JOURNAL_KEYS || oldest === undefined) continue
    runs.delete(oldest[0])
    keys.delete(oldest[1].request_id)
  }
  return runs
}
