import { stat } from 'node:fs/promises'
import { unreadable } from '../base/files.ts'
import type { AgentId } from '../protocol/ids.ts'
import { type ChainState, JournalChains, type JournalPosition, type SignedThrough } from './chains.ts'
import { type AnyRunKey, type JournalLine, keyOf } from './events.ts'
import { FIRST_PREV, hashLine } from './line.ts'
import { type LaterLine, isTorn, parseLaterLine, parseLine } from './parse-line.ts'
import { type RawLine, readLines } from './read.ts'

/** One file of a journal, with its chains and the numbers of their lines. */
export interface JournalPart {
  readonly path: string
  readonly chains: ReadonlyMap<string, { first: number; last: number }>
  /** Chains that a chain beginning in this file names as the one before it. */
  readonly follows: ReadonlySet<string>
}

/** Found by a pattern without parsing, because the verifier checks the content. */
const PLACE = /"chain":"([0-9a-f-]{36})","n":(\d{1,15}),/
const AFTER = /"after":\{"chain":"([0-9a-f-]{36})"/
/** PLACE ends within this many characters. */
const HEAD_CHARS = 200

export const partOf = async (path: string, signal?: AbortSignal): Promise<JournalPart> => {
  const chains = new Map<string, { first: number; last: number }>()
  const follows = new Set<string>()
  for await (const lines of readLines(path, { signal }))
    for (const { bytes } of lines) {
      const [, chain, n] = PLACE.exec(bytes?.toString('latin1', 0, HEAD_CHARS) ?? '') ?? []
      if (chain === undefined) continue
      const seen = chains.get(chain)
      if (seen === undefined) chains.set(chain, { first: Number(n), last: Number(n) })
      else seen.last = Number(n)
      const [, after] = (n === '0' && AFTER.exec(bytes?.toString('latin1') ?? '')) || []
      if (after !== undefined) follows.add(after)
    }
  return { path, chains, follows }
}

type Before = Map<JournalPart, Set<JournalPart>>

/** The files before each file, by the chains in them. */
const saidBefore = (parts: readonly JournalPart[]): Before => {
  const holders = new Map<string, JournalPart[]>()
  for (const part of parts)
    for (const chain of part.chains.keys()) {
      const known = holders.get(chain)
      if (known === undefined) holders.set(chain, [part])
      else known.push(part)
    }
  const before = parts.map((part): [JournalPart, Set<JournalPart>] => {
    const said = new Set<JournalPart>()
    for (const [chain, { first }] of part.chains)
      for (const other of holders.get(chain) ?? []) if ((other.chains.get(chain)?.last ?? Infinity) < first) said.add(other)
    for (const chain of part.follows) if (!part.chains.has(chain)) for (const other of holders.get(chain) ?? []) said.add(other)
    said.delete(part)
    return [part, said]
  })
  return new Map(before)
}

/**
 * Sorts files, oldest first, by the numbers of lines in each chain and by the line that each chain names as the one before its first.
 * Clocks are ignored, because they may be set back. Unrelated files keep their order.
 */
export const inOrder = (parts: readonly JournalPart[]): JournalPart[] => {
  const said = saidBefore(parts)
  // Two files that each name the other as earlier are not ordered by that.
  const waitsFor = new Map(
    parts.map((part) => [part, new Set([...(said.get(part) ?? [])].filter((other) => said.get(other)?.has(part) !== true))]),
  )
  const ordered: JournalPart[] = []
  while (waitsFor.size > 0) {
    const left = [...waitsFor]
    // The verifier reports cycles.
    const [next] = left.find(([, others]) => others.size === 0) ?? left[0]!
    ordered.push(next)
    waitsFor.delete(next)
    for (const others of waitsFor.values()) others.delete(next)
  }
  return ordered
}

/** Listed problems of one verification. Further ones are counted. */
export const MAX_VERIFY_PROBLEMS = 100
/** Listed ends of chains. If several processes write one file, there are many that no later chain names. */
export const MAX_VERIFY_HEADS = 1_000
/** Characters of an event's name in a message. */
const MAX_CALLED = 64

/**
 * Kinds of problems.
 * `unreadable` is a line of a later version, or not a line of a journal.
 * `altered` means that this line or the one before it in its chain was changed.
 * `missing` means that lines of a chain, or a whole chain, are gone.
 * `out_of_place` means that a line or chain occurs twice, after its successors, or in the wrong place.
 * `head_missing` means that the first lines are in no file.
 * `signature` means that it is invalid, missing, or of another agent than stated.
 * `unfinished` is a run that started, has no end, and is not running.
 */
export const PROBLEM_KINDS = ['unreadable', 'altered', 'missing', 'out_of_place', 'head_missing', 'signature', 'unfinished'] as const
export type ProblemKind = (typeof PROBLEM_KINDS)[number]

export type JournalProblem = JournalPosition & { readonly kind: ProblemKind; readonly message: string }

export interface ChainHead {
  readonly chain: string
  /** Number of lines up to its last one, with those before the given files. */
  readonly lines: number
  /** SHA-256 of its last line without the line feed, hex. */
  readonly sha256: string
  /** False if its writer is running or was killed, or its end was cut off. */
  readonly stopped: boolean
  /** True if no later chain names it. Compare these with an older copy to see whether the journal's end was cut off. */
  readonly last: boolean
}

export interface SignedPart {
  readonly agents: readonly AgentId[]
  /** Lines covered by a signature of their chain, or of a later chain that names them. */
  readonly lines: number
  /** Position of the newest signature, or null for an unsigned journal. */
  readonly through: SignedThrough | null
}

export interface VerifyReport {
  /** True without problems. Torn lines, running runs and unsigned lines are no problems. */
  readonly ok: boolean
  readonly files: readonly string[]
  readonly lines: number
  readonly chains: number
  /** Number of chains that begin in these files. */
  readonly lives: number
  /** Number of these chains that begin in a new file without naming an earlier chain. A missing link to earlier files is not noticed. */
  readonly unlinked_lives: number
  /** Number of chains that have not stopped. */
  readonly open_chains: number
  /** Up to MAX_VERIFY_HEADS ends of chains to compare with a separate copy. Those that no later chain names are last. */
  readonly heads: readonly ChainHead[]
  readonly signed: SignedPart
  /** Lines that a crash or a full disk cut off, each at the end of the file at that time. */
  readonly torn_lines: number
  readonly running: number
  readonly problem_count: number
  /** At most MAX_VERIFY_PROBLEMS. */
  readonly problems: readonly JournalProblem[]
}

export interface VerifyOptions {
  /** Returns the running runs (`listRunningMarks`, `listLocalRuns`), which may have no end. Called when the files are read. */
  readonly running?: () => Promise<readonly AnyRunKey[]>
  /** True if older files were removed, so that a chain may begin in its middle. */
  readonly continued?: boolean
  /**
   * Accepted signers, the newest first: an agent, and the keys that it replaced. An earlier key may not sign after a newer one has begun a chain.
   * Null means any signer, and that unsigned journals are accepted.
   */
  readonly agentIds?: readonly AgentId[] | null
}

/** Checks line after line. Keeps one entry of some hundred bytes for each chain and each run without an end. */
class Verifier {
  readonly #options: VerifyOptions
  /** Null if not known yet. */
  #running: ReadonlySet<string> | null = null
  readonly #chains = new Map<string, ChainState>()
  readonly #lives: JournalChains
  readonly #started = new Map<string, JournalPosition>()
  readonly #problems: JournalProblem[] = []
  #problemCount = 0
  #lines = 0
  #torn = 0
  /** Number of lines of chains, in all files and in the present one. */
  #read = 0
  #inFile = 0

  constructor(options: VerifyOptions) {
    this.#options = options
    this.#lives = new JournalChains({ agentIds: options.agentIds ?? null, continued: options.continued ?? false, chains: this.#chains })
  }

  /** Reads the running runs. Any run that started before and is still running is included. */
  async lookAtRunning(): Promise<void> {
    const running = (await this.#options.running?.()) ?? []
    this.#running = new Set(running.map(keyOf))
  }

  nextFile(): void {
    this.#inFile = 0
  }

  take(file: string, raw: RawLine): void {
    // If several processes write one file, each ends a possibly torn line of another.
    if (raw.bytes?.length === 0) return
    this.#lines += 1
    const place = { file, line: raw.number }
    const line = raw.bytes === null ? null : parseLine(raw.bytes)
    const later = raw.bytes === null || line !== null ? null : parseLaterLine(raw.bytes)
    if (raw.bytes !== null && line !== null) {
      this.#follow(place, line, raw.bytes)
      this.#record(place, line)
    } else if (raw.bytes !== null && later !== null) {
      this.#follow(place, later, raw.bytes)
      const message = `its event ${JSON.stringify(later.called.slice(0, MAX_CALLED))} is not known to this version of x0x: verify with the one that wrote it, or a later one`
      this.#report(place, { kind: 'unreadable', message })
    } else if (raw.bytes !== null && isTorn(raw.bytes)) this.#torn += 1
    else this.#report(place, { kind: 'unreadable', message: 'this is not a line of a journal' })
  }

  finish(files: readonly string[]): VerifyReport {
    let running = 0
    for (const [key, place] of this.#started) {
      if (this.#running?.has(key)) running += 1
      else this.#report(place, { kind: 'unfinished', message: 'the run that starts at this line has no end and is not running' })
    }
    for (const { place, finding } of this.#lives.finish()) this.#report(place, finding)
    const { lives, unlinked, agents, through } = this.#lives.summary
    const chains = [...this.#chains.values()]
    const named = new Set(chains.flatMap(({ after }) => after?.chain ?? []))
    const newest = [true, false].flatMap((isNamed) => chains.filter(({ id }) => named.has(id) === isNamed)).slice(-MAX_VERIFY_HEADS)
    return {
      ok: this.#problemCount === 0,
      files,
      lines: this.#lines,
      chains: chains.length,
      lives,
      unlinked_lives: unlinked,
      open_chains: chains.filter(({ stopped }) => !stopped).length,
      heads: newest.map(({ id, next, prev, stopped }) => ({ chain: id, lines: next, sha256: prev, stopped, last: !named.has(id) })),
      signed: { agents, lines: chains.reduce((sum, { first, signedTo }) => sum + Math.max(0, signedTo + 1 - first), 0), through },
      torn_lines: this.#torn,
      running,
      problem_count: this.#problemCount,
      problems: this.#problems,
    }
  }

  #follow(place: JournalPosition, line: JournalLine | LaterLine, bytes: Buffer): void {
    const { chain, n, prev } = line
    const state = this.#chains.get(chain) ?? this.#start(place, line)
    if (n < state.next)
      return this.#report(place, { kind: 'out_of_place', message: `line ${n} of chain ${chain} is repeated or out of order` })
    const gap = `lines ${state.next} to ${n - 1} of chain ${chain} are missing before this one`
    if (n > state.next) this.#report(place, { kind: 'missing', message: gap })
    else if (state.next > state.first && prev !== state.prev)
      this.#report(place, { kind: 'altered', message: `line ${n} of chain ${chain} does not fit the one before it` })
    if (state.stopped) this.#report(place, { kind: 'altered', message: `chain ${chain} continues after its end` })
    if (line.event === 'began' && n > 0) this.#report(place, { kind: 'altered', message: `chain ${chain} begins a second time` })
    if (line.event === 'head' || line.event === 'stopped')
      for (const finding of this.#lives.seal(place, line, bytes, state)) this.#report(place, finding)
    this.#read += 1
    this.#inFile += 1
    state.next = n + 1
    state.prev = hashLine(bytes)
    state.at = this.#read
    state.stopped ||= line.event === 'stopped'
    this.#lives.read(state)
  }

  #start(place: JournalPosition, line: JournalLine | LaterLine): ChainState {
    const { chain, n, prev } = line
    const altered = (message: string): void => this.#report(place, { kind: 'altered', message })
    if (n === 0 && prev !== FIRST_PREV) altered(`the first line of chain ${chain} names one before it`)
    // The first line of a later version's chain is unknown.
    if (n === 0 && line.event !== 'began' && line.event !== null) altered(`the first line of chain ${chain} is not a valid first line`)
    if (n > 0 && this.#options.continued) this.#lives.resume(chain, place)
    else if (n > 0) {
      const message = `chain ${chain} begins with line ${n}: if the log was rotated, name the older file too`
      this.#report(place, { kind: 'head_missing', message })
    }
    const began = line.event === 'began' && n === 0 ? line : null
    if (began !== null) for (const finding of this.#lives.start(chain, began, this.#read, this.#inFile)) this.#report(place, finding)
    const [signer, after] = [this.#lives.keep(began?.signer ?? null), began?.after]
    const state = { id: chain, first: n, next: n, prev, at: 0, signer, signedTo: -1, stopped: false, after }
    this.#chains.set(chain, state)
    return state
  }

  #record(place: JournalPosition, line: JournalLine): void {
    // A run that started after the running runs were read may have no end yet.
    if (line.event === 'started' && this.#running === null) this.#started.set(keyOf(line), place)
    else if (line.event === 'exit' || line.event === 'lost') this.#started.delete(keyOf(line))
  }

  #report(place: JournalPosition, { kind, message }: { kind: ProblemKind; message: string }): void {
    this.#problemCount += 1
    if (this.#problems.length < MAX_VERIFY_PROBLEMS) this.#problems.push({ ...place, kind, message })
  }
}

/** A pipe would be empty the second time. */
const regular = async (path: string): Promise<string> => {
  if ((await stat(path)).isFile()) return path
  throw new Error('it is not a regular file, and several files are read twice: verify it alone, or unpack it first')
}

/**
 * Verifies a journal from all its files in any order. Finds changed, removed, repeated and moved lines, and removed, shortened and moved
 * chains, and states the lines that signatures cover. Memory grows with the chains and the runs without an end, not with the lines. It
 * cannot detect that the end of the last chain was cut off, or that a user with write access replaced unsigned lines. One file may be a
 * pipe. Several files are read twice, first to order them. Throws `not_found` for a file that cannot be read.
 */
export const verifyJournal = async (paths: readonly string[], options: VerifyOptions = {}, signal?: AbortSignal): Promise<VerifyReport> => {
  const verifier = new Verifier(options)
  let path = ''
  try {
    const parts: JournalPart[] = []
    if (paths.length > 1) for (path of paths) parts.push(await partOf(await regular(path), signal))
    const ordered = paths.length > 1 ? inOrder(parts).map((part) => part.path) : paths
    for (path of ordered) {
      verifier.nextFile()
      // Only the newest file grows.
      const atEnd = path === ordered.at(-1) ? async (): Promise<void> => verifier.lookAtRunning() : undefined
      for await (const lines of readLines(path, { signal, atEnd })) for (const line of lines) verifier.take(path, line)
    }
    return verifier.finish(ordered)
  } catch (error) {
    signal?.throwIfAborted()
    throw unreadable('not_found', path, error)
  }
}
