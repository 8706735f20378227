import { open, rm } from 'node:fs/promises'
import { isMissing } from '../base/errors.ts'
import { readBounded, writeFileAtomic } from '../base/files.ts'
import type { JournalledFacts } from '../protocol/api/exec-target.ts'
import { MAX_JOURNAL_KEYS } from '../protocol/limits/tools.ts'
import { JournalCursor } from './cursor.ts'
import { type JournalExit, type JournalLine, type RefusedEvent, isMeshEvent } from './events.ts'
import { parseLine } from './parse-line.ts'
import type { RunKey } from './run-key.ts'
import { isMarked, localMarksOf } from './running-marks.ts'
import { lastLines } from './tail.ts'

/** Lines searched for a key. They are some 40 MB of a journal, read once. */
const MAX_RECALLED_LINES = 50_000

const HEX_64 = /^[0-9a-f]{64}$/

/** A run with an idempotency key, from the journal. */
export interface JournalledRun extends JournalledFacts {
  readonly request_id: string
  /**
   * `goes_on`: its process is alive and has not ended it. `none`: no line records its end. `lost`: its server died before the end or was
   * not informed.
   */
  readonly end:
    | { readonly kind: 'goes_on' | 'none' | 'lost' }
    | ({ readonly kind: 'refused' } & Pick<RefusedEvent, 'code' | 'detail'>)
    | ({ readonly kind: 'exit' } & Pick<JournalExit, 'code' | 'signal' | 'duration_ms' | 'stdout_bytes' | 'stderr_bytes' | 'truncated'>)
}

const begunBy = (line: JournalLine): readonly [key: string, run: JournalledRun] | null => {
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
    descendants_ended: null,
    end: { kind: 'none' as const },
  }
  return [key_sha256, run]
}

/** The run after a later line. */
const changedBy = (line: JournalLine, run: JournalledRun): JournalledRun => {
  switch (line.event) {
    case 'warning':
      return {
        ...run,
        timeout_clamped: run.timeout_clamped || line.kind === 'timeout_clamped',
        timed_out: run.timed_out || line.kind === 'duration_cap_hit',
        descendants_ended: line.kind === 'descendants_ended' ? (line.processes ?? null) : run.descendants_ended,
      }
    case 'exit': {
      const { code, signal, duration_ms, stdout_bytes, stderr_bytes, truncated } = line
      // A target's daemon did not report the end. A run that never started is not truncated.
      if (code === null && signal === null && truncated) return { ...run, end: { kind: 'lost' } }
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

/** At most MAX_JOURNAL_KEYS runs with an idempotency key, from the last MAX_RECALLED_LINES lines and all later ones. */
export class JournalledRuns {
  readonly #path: string
  readonly #cursor: JournalCursor
  /** By the hash of the key, the oldest first. */
  readonly #runs = new Map<string, JournalledRun>()
  /** By the ID of the run. */
  readonly #keys = new Map<string, string>()
  #last: Promise<void> = Promise.resolve()
  #next: Promise<void> | null = null

  constructor(init: { readonly path: string }) {
    this.#path = init.path
    this.#cursor = new JournalCursor({ path: init.path, lines: MAX_RECALLED_LINES, open: async (path) => open(path, 'r') })
  }

  /** The run of this key by the journal's present content, or null. Throws the system's error if it cannot be read. */
  async find(key: string): Promise<JournalledRun | null> {
    await this.#readOn()
    const run = this.#runs.get(key)
    if (run?.end.kind !== 'none') return run ?? null
    if (await isMarked(localMarksOf(this.#path), run.request_id)) return { ...run, end: { kind: 'goes_on' } }
    // A run's mark is removed after its end is written, so read again in case the end was written between the two.
    await this.#readOn()
    return this.#runs.get(key) ?? null
  }

  /** Reads all lines written before this call. Waits for a reading in progress, and shares the next one. */
  async #readOn(): Promise<void> {
    this.#next ??= this.#last.then(async () => {
      this.#next = null
      return this.#cursor.read((line) => this.#take(line))
    })
    const reading = this.#next
    this.#last = reading.catch(() => undefined)
    return reading
  }

  #take(bytes: Buffer): void {
    const text = bytes.toString()
    const id = /"request_id":"([0-9a-f-]{36})"/.exec(text)?.[1]
    if (id === undefined || !(this.#keys.has(id) || text.includes('"key_sha256":"'))) return
    const line = parseLine(bytes)
    if (line === null) return
    const begun = begunBy(line)
    const key = begun?.[0] ?? this.#keys.get(id)
    const before = begun?.[1] ?? (key === undefined ? undefined : this.#runs.get(key))
    if (key === undefined || before === undefined || before.request_id !== id) return
    this.#keys.set(id, key)
    this.#runs.set(key, changedBy(line, before))
    const [oldest] = this.#runs
    if (this.#runs.size <= MAX_JOURNAL_KEYS || oldest === undefined) return
    this.#runs.delete(oldest[0])
    this.#keys.delete(oldest[1].request_id)
  }
}

/** Lines of a run without warnings, which are its request, its start and its end. */
const LINES_OF_RUN = 3
/** Twice the size of those lines, so that long commands hide few others. */
const BYTES_OF_RUN = 4 * 1024

const BEGINS = '"event":"request"'
/** A denial or a failed start has no such line. */
const STARTED = '"event":"started"'
const NOT_STARTED = '"reason":"spawn_failed"'

const firstParsed = (lines: readonly Uint8Array[]): ReturnType<typeof parseLine> => {
  for (const line of lines) {
    const parsed = parseLine(Buffer.from(line))
    if (parsed !== null) return parsed
  }
  return null
}

export interface LastBegun {
  /** The last runs that began, oldest first. */
  readonly runs: readonly RunKey[]
  /**
   * They are all that began after this time, in milliseconds since 1970. NaN means unknown. A new journal tells nothing of the time before
   * its first line, because an earlier daemon may have had another journal.
   */
  readonly since: number
}

/**
 * The last `count` or so started runs of other agents. Only the end of a large journal is read. Throws `not_found` if the journal cannot be
 * read. A missing journal has no runs.
 */
export const lastBegun = async (path: string, count: number): Promise<LastBegun> => {
  const { lines } = await lastLines(path, { lines: count * LINES_OF_RUN, maxBytes: count * BYTES_OF_RUN })
  const begun = new Map<string, { readonly run: RunKey; readonly ts: string }>()
  const started = new Set<string>()
  for (const line of lines.filter((bytes) => [BEGINS, STARTED, NOT_STARTED].some((text) => bytes.includes(text))).map(parseLine)) {
    if (line === null || !('request_id' in line) || !('machine_id' in line) || !isMeshEvent(line)) continue
    const { request_id, agent_id, machine_id } = line
    const name = `${agent_id}:${machine_id}:${request_id}`
    if (line.event === 'request') begun.set(name, { run: { request_id, agent_id, machine_id }, ts: line.ts })
    else if (line.event === 'started') started.add(name)
    else if (line.event === 'denial' && line.reason === 'spawn_failed' && !started.has(name)) begun.delete(name)
  }
  const all = [...begun.values()]
  const kept = all.slice(-count)
  const oldest = kept.length < all.length ? kept[0] : firstParsed(lines)
  return { runs: kept.map(({ run }) => run), since: Date.parse(oldest?.ts ?? '') }
}

/** A path of Linux and macOS has at most 4096 bytes. */
const MAX_PATH_BYTES = 8 * 1024

/**
 * Whether the last daemon of this data directory wrote the journal at `path`. If not, that journal lacks runs that began shortly
 * before this start. `note` is the file that names the last journal. It names this one afterwards, before any run begins.
 */
export const continuesJournal = async (note: string, path: string): Promise<boolean> => {
  if ((await noted(note)) === path) return true
  // If the disk is full, no note is better than an older one. The next start then takes its journal for another one.
  await rm(note, { force: true })
  await writeFileAtomic(note, path).catch(() => undefined)
  return false
}

const noted = async (note: string): Promise<string | null> => {
  try {
    return (await readBounded(note, { max: MAX_PATH_BYTES })).toString('utf8')
  } catch (error) {
    if (isMissing(error)) return null
    throw error
  }
}
