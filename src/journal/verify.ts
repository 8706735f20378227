import { stat } from 'node:fs/promises'
import { unreadable } from '../base/files.ts'
import type { AgentId } from '../protocol/ids.ts'
import { type ChainState, JournalChains, type JournalPosition, type SignedThrough } from './chains.ts'
import { type AnyRunKey, type JournalLine, keyOf } from './events.ts'
import { FIRST_PREV, hashLine } from './line.ts'
import { type LaterLine, isTorn, parseLaterLine, parseLine } from './parse-line.ts'
import { type RawLine, readLines } from './read.ts'

/** One file of a journal: which lines of which chains stand in it. */
export interface JournalPart {
  readonly path: string
  readonly chains: ReadonlyMap<string, { first: number; last: number }>
  /** Chains that a chain which begins in this file names as the one before it. */
  readonly follows: ReadonlySet<string>
}

/** Found by pattern, not parsed: the verifier checks what the lines say. */
const PLACE = /"chain":"([0-9a-f-]{36})","n":(\d{1,15}),/
const AFTER = /"after":\{"chain":"([0-9a-f-]{36})"/
/** Where PLACE ends at the latest. */
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

/** For each file the files that stand before it, by what the chains in them say. */
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
 * Sorts the files, oldest first: by the numbers of the lines of each chain, and by the line that each chain names as the
 * one before its first. Clocks decide nothing, since they may be set back. Files that no chain orders keep their order.
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
    // A cycle, which the verifier reports.
    const [next] = left.find(([, others]) => others.size === 0) ?? left[0]!
    ordered.push(next)
    waitsFor.delete(next)
    for (const others of waitsFor.values()) others.delete(next)
  }
  return ordered
}

/** Problems that one verification lists; it goes on counting. */
export const MAX_VERIFY_PROBLEMS = 100
/** Ends of chains that one verification lists: of those that no later life names there are more where several processes write one file. */
export const MAX_VERIFY_HEADS = 1_000
/** Characters of an event's name that a message shows. */
const MAX_CALLED = 64

/**
 * `unreadable`: not a line of a journal, or one of a later version's. `altered`: this line or the one before it in its chain is not
 * what was written. `missing`: lines of a chain, or a whole life, are gone. `out_of_place`: a line or a life
 * stands twice, behind its successors, or where it does not belong. `head_missing`: the first lines are in none of
 * the files. `signature`: one that does not fit, is gone, or is of another agent than was said. `unfinished`: a
 * run that started, has no end, and does not run.
 */
export const PROBLEM_KINDS = ['unreadable', 'altered', 'missing', 'out_of_place', 'head_missing', 'signature', 'unfinished'] as const
export type ProblemKind = (typeof PROBLEM_KINDS)[number]

export type JournalProblem = JournalPosition & { readonly kind: ProblemKind; readonly message: string }

export interface ChainHead {
  readonly chain: string
  /** What its last line counts to; lines before the files given are among them. */
  readonly lines: number
  /** Of its last line, without the line feed; hex. */
  readonly sha256: string
  /** False: it still goes on, its writer was killed, or its end was cut off. */
  readonly stopped: boolean
  /** No later life names it as the one before: with an older copy these tell whether the journal's end was cut off. */
  readonly last: boolean
}

export interface SignedPart {
  /** Whose signatures fit. */
  readonly agents: readonly AgentId[]
  /** Lines that a signature covers, by themselves or by a later life that names them. */
  readonly lines: number
  /** Where the newest signature stands; null: nothing is signed. */
  readonly through: SignedThrough | null
}

export interface VerifyReport {
  /** True when there is no problem; torn lines, running runs and unsigned lines are none. */
  readonly ok: boolean
  readonly files: readonly string[]
  readonly lines: number
  readonly chains: number
  /** How many chains begin in these files. */
  readonly lives: number
  /** Of these, how many begin in a new file and know of none before: the link to the files before is theirs to miss. */
  readonly unlinked_lives: number
  /** Of all chains, how many have not stopped. */
  readonly open_chains: number
  /** The ends of chains, to be compared with a copy kept elsewhere: of MAX_VERIFY_HEADS at most, those that no later life names last. */
  readonly heads: readonly ChainHead[]
  readonly signed: SignedPart
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
  /** Who must have signed. Null: whoever has, and that nobody has is no problem. */
  readonly agentId?: AgentId | null
}

/** Checks line after line; keeps one entry, some hundred bytes, per chain and per run without an end. */
class Verifier {
  readonly #options: VerifyOptions
  /** Null: it is not known yet. */
  #running: ReadonlySet<string> | null = null
  readonly #chains = new Map<string, ChainState>()
  readonly #lives: JournalChains
  readonly #started = new Map<string, JournalPosition>()
  readonly #problems: JournalProblem[] = []
  #problemCount = 0
  #lines = 0
  #torn = 0
  /** Lines of chains, in all files and in the one that is read. */
  #read = 0
  #inFile = 0

  constructor(options: VerifyOptions) {
    this.#options = options
    this.#lives = new JournalChains({ agentId: options.agentId ?? null, continued: options.continued ?? false, chains: this.#chains })
  }

  /** Looks at what runs; of what is taken from then on, nothing is missed that ran before. */
  async lookAtRunning(): Promise<void> {
    const running = (await this.#options.running?.()) ?? []
    this.#running = new Set(running.map(keyOf))
  }

  nextFile(): void {
    this.#inFile = 0
  }

  take(file: string, raw: RawLine): void {
    // Where several write one file, each closes what another may have torn.
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
      else this.#report(place, { kind: 'unfinished', message: 'the run that started here has no end and does not run' })
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
      return this.#report(place, { kind: 'out_of_place', message: `line ${n} of chain ${chain} stands here again or too late` })
    const gap = `lines ${state.next} to ${n - 1} of chain ${chain} are missing before this one`
    if (n > state.next) this.#report(place, { kind: 'missing', message: gap })
    else if (state.next > state.first && prev !== state.prev)
      this.#report(place, { kind: 'altered', message: `line ${n} of chain ${chain} does not fit the one before it` })
    if (state.stopped) this.#report(place, { kind: 'altered', message: `chain ${chain} goes on behind its end` })
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
    // How a life begins that a later version has written is not known here.
    if (n === 0 && line.event !== 'began' && line.event !== null) altered(`the first line of chain ${chain} is not how a life begins`)
    if (n > 0 && this.#options.continued) this.#lives.resume(chain, place)
    else if (n > 0) {
      const message = `chain ${chain} begins here with line ${n}: give the older file as well, if it was rotated away`
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
    // What has started since we looked may have no end yet.
    if (line.event === 'started' && this.#running === null) this.#started.set(keyOf(line), place)
    else if (line.event === 'exit' || line.event === 'lost') this.#started.delete(keyOf(line))
  }

  #report(place: JournalPosition, { kind, message }: { kind: ProblemKind; message: string }): void {
    this.#problemCount += 1
    if (this.#problems.length < MAX_VERIFY_PROBLEMS) this.#problems.push({ ...place, kind, message })
  }
}

/** What can be read once only would be empty the second time. */
const regular = async (path: string): Promise<string> => {
  if ((await stat(path)).isFile()) return path
  throw new Error('it is no regular file, and several are read twice: verify it alone, or unpack it first')
}

/**
 * Checks a journal, given all its files in any order. Finds what was altered, taken out, doubled or moved inside a
 * life, and lives that were taken out, shortened or moved; and says what a signature covers. Its memory grows with the
 * lives and the runs without an end, not with the lines. What it cannot see: that the end of all was cut off. What no signature covers, whoever may write the file may have
 * written anew. One file may be a pipe; several are read twice, first to put them in order. Throws `not_found` for a file that
 * cannot be read.
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
      // Only the newest grows.
      const atEnd = path === ordered.at(-1) ? async (): Promise<void> => verifier.lookAtRunning() : undefined
      for await (const lines of readLines(path, { signal, atEnd })) for (const line of lines) verifier.take(path, line)
    }
    return verifier.finish(ordered)
  } catch (error) {
    signal?.throwIfAborted()
    throw unreadable('not_found', path, error)
  }
}
