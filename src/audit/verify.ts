import { AppError, errorText } from '../base/errors.ts'
import { MAX_VERIFY_PROBLEMS } from '../protocol/local-limits.ts'
import type { AnyRunKey, JournalLine } from './events.ts'
import { FIRST_PREV, hashLine } from './line.ts'
import { isTorn, parseLine } from './parse-line.ts'
import { readLines, type RawLine } from './read-lines.ts'
import { keyOf } from './run-ends.ts'

/**
 * `unreadable`: not a line of a journal. `altered`: this line or the one before it in its chain is not
 * what was written. `missing`: lines of the chain are gone. `out_of_place`: a line stands twice or
 * behind its successors. `head_missing`: the chain's first lines are in none of the files.
 * `unfinished`: a run that started, has no end, and does not run.
 */
export const PROBLEM_KINDS = ['unreadable', 'altered', 'missing', 'out_of_place', 'head_missing', 'unfinished'] as const
export type ProblemKind = (typeof PROBLEM_KINDS)[number]

export interface JournalProblem {
  readonly file: string
  /** From 1. */
  readonly line: number
  readonly kind: ProblemKind
  readonly message: string
}

export interface ChainHead {
  readonly chain: string
  /** What its last line counts to; lines before the files given are among them. */
  readonly lines: number
  /** Of its last line, without the line feed; hex. */
  readonly sha256: string
}

export interface VerifyReport {
  /** True when there is no problem; torn lines and running runs are none. */
  readonly ok: boolean
  readonly files: readonly string[]
  readonly lines: number
  readonly chains: number
  /** The end of each chain, to be compared with a copy kept elsewhere. */
  readonly heads: readonly ChainHead[]
  /** Lines that a crash or a full disk cut off; each stood at the end when it happened. */
  readonly torn_lines: number
  /** Runs that have started and still run. */
  readonly running: number
  readonly problem_count: number
  /** The first MAX_VERIFY_PROBLEMS of them. */
  readonly problems: readonly JournalProblem[]
}

export interface VerifyOptions {
  /** Tells what runs now (`listRunningMarks`, `listLocalRuns`), which may be without an end; asked when the files are read. */
  readonly running?: () => Promise<readonly AnyRunKey[]>
  /** Older files were rotated away: a chain may begin in its middle. */
  readonly continued?: boolean
}

interface Place {
  readonly file: string
  readonly line: number
}

interface ChainState {
  next: number
  prev: string
}

/** Checks line after line; keeps one entry per chain and per run without an end. */
class Verifier {
  readonly #options: VerifyOptions
  /** Null: it is not known yet. */
  #running: ReadonlySet<string> | null = null
  readonly #chains = new Map<string, ChainState>()
  readonly #started = new Map<string, Place>()
  readonly #problems: JournalProblem[] = []
  #problemCount = 0
  #lines = 0
  #torn = 0

  constructor(options: VerifyOptions) {
    this.#options = options
  }

  /** Looks at what runs; of what is taken from then on, nothing is missed that ran before. */
  async lookAtRunning(): Promise<void> {
    const running = (await this.#options.running?.()) ?? []
    this.#running = new Set(running.map(keyOf))
  }

  take(file: string, raw: RawLine): void {
    this.#lines += 1
    const place = { file, line: raw.number }
    const line = raw.bytes === null ? null : parseLine(raw.bytes)
    if (raw.bytes !== null && line !== null) {
      this.#follow(place, line, hashLine(raw.bytes))
      this.#note(place, line)
    } else if (raw.bytes !== null && isTorn(raw.bytes)) this.#torn += 1
    else this.#report(place, 'unreadable', 'this is not a line of a journal')
  }

  finish(files: readonly string[]): VerifyReport {
    let running = 0
    for (const [key, place] of this.#started) {
      if (this.#running?.has(key)) running += 1
      else this.#report(place, 'unfinished', 'the run that started here has no end and does not run')
    }
    return {
      ok: this.#problemCount === 0,
      files,
      lines: this.#lines,
      chains: this.#chains.size,
      heads: [...this.#chains].map(([chain, { next, prev }]) => ({ chain, lines: next, sha256: prev })),
      torn_lines: this.#torn,
      running,
      problem_count: this.#problemCount,
      problems: this.#problems,
    }
  }

  #follow(place: Place, line: JournalLine, hash: string): void {
    const { chain, n, prev } = line
    const state = this.#chains.get(chain)
    if (state === undefined) {
      this.#begin(place, line)
      this.#chains.set(chain, { next: n + 1, prev: hash })
      return
    }
    if (n < state.next) {
      this.#report(place, 'out_of_place', `line ${n} of chain ${chain} stands here again or too late`)
      return
    }
    if (n > state.next) this.#report(place, 'missing', `lines ${state.next} to ${n - 1} of chain ${chain} are missing before this one`)
    else if (prev !== state.prev) this.#report(place, 'altered', `line ${n} of chain ${chain} does not fit the one before it`)
    state.next = n + 1
    state.prev = hash
  }

  #begin(place: Place, { chain, n, prev }: JournalLine): void {
    if (n === 0 && prev !== FIRST_PREV) this.#report(place, 'altered', `the first line of chain ${chain} names one before it`)
    if (n > 0 && !this.#options.continued)
      this.#report(place, 'head_missing', `chain ${chain} begins here with line ${n}: give the older file as well, if it was rotated away`)
  }

  #note(place: Place, line: JournalLine): void {
    // What has started since we looked may have no end yet.
    if (line.event === 'started' && this.#running === null) this.#started.set(keyOf(line), place)
    else if (line.event === 'exit' || line.event === 'lost') this.#started.delete(keyOf(line))
  }

  #report(place: Place, kind: ProblemKind, message: string): void {
    this.#problemCount += 1
    if (this.#problems.length < MAX_VERIFY_PROBLEMS) this.#problems.push({ ...place, kind, message })
  }
}

interface JournalPart {
  readonly path: string
  /** The first whole line; null where there is none. */
  readonly first: JournalLine | null
}

const firstLineOf = async (path: string, signal?: AbortSignal): Promise<JournalLine | null> => {
  for await (const lines of readLines(path, { signal }))
    for (const { bytes } of lines) {
      const line = bytes && parseLine(bytes)
      if (line) return line
    }
  return null
}

/** Oldest first. Within a chain its own count decides, because a clock may be set back. */
const byAge = ({ first: a }: JournalPart, { first: b }: JournalPart): number => {
  if (a === null || b === null) return Number(a !== null) - Number(b !== null)
  if (a.chain === b.chain) return a.n - b.n
  return Date.parse(a.ts) - Date.parse(b.ts)
}

/**
 * Checks a journal, given all its files in any order. Finds what was altered, taken out, doubled or
 * moved inside a chain, in bounded memory. What it cannot see: that the last lines of a chain were cut
 * off, for which the journal must be copied elsewhere in time. Throws `not_found` for a file that
 * cannot be read.
 */
export const verifyJournal = async (paths: readonly string[], options: VerifyOptions = {}, signal?: AbortSignal): Promise<VerifyReport> => {
  const verifier = new Verifier(options)
  let path = ''
  try {
    const parts: JournalPart[] = []
    for (path of paths) parts.push({ path, first: await firstLineOf(path, signal) })
    parts.sort(byAge)
    for (const part of parts) {
      path = part.path
      // Only the newest grows.
      const atEnd = part === parts.at(-1) ? async (): Promise<void> => verifier.lookAtRunning() : undefined
      for await (const lines of readLines(path, { signal, atEnd })) for (const line of lines) verifier.take(path, line)
    }
    return verifier.finish(parts.map((part) => part.path))
  } catch (error) {
    signal?.throwIfAborted()
    throw new AppError('not_found', `${path} cannot be read: ${errorText(error)}`, { cause: error, data: { file: path } })
  }
}
