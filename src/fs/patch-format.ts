import { AppError } from '../base/errors.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import { tooMuch } from './refusals.ts'
import { Sequence } from './sequence.ts'

/** Lines of one patch. Each costs up to 160 bytes and 1 µs in one turn. */
export const MAX_PATCH_TEXT_LINES = 200_000

export interface PatchLine {
  readonly kind: 'keep' | 'remove' | 'add'
  readonly text: string
}

/** One changed place of a file. */
export interface Hunk {
  /** Lines that occur above it, in this order. */
  readonly contexts: readonly string[]
  readonly lines: readonly PatchLine[]
  /** Its last line is the last of the file. */
  readonly atEnd: boolean
  /** Line of the patch where it starts, from 1. */
  readonly line: number
}

export type PatchChange =
  | { readonly kind: 'add'; readonly path: string; readonly content: string }
  | { readonly kind: 'delete'; readonly path: string }
  | { readonly kind: 'update'; readonly path: string; readonly moveTo: string | null; readonly hunks: readonly Hunk[] }

const BEGIN = '*** Begin Patch'
const END = '*** End Patch'
const ADD = '*** Add File:'
const DELETE = '*** Delete File:'
const UPDATE = '*** Update File:'
const MOVE = '*** Move to:'
const END_OF_FILE = '*** End of File'

const KINDS: Readonly<Record<string, PatchLine['kind']>> = { ' ': 'keep', '-': 'remove', '+': 'add' }

/** A carriage return is part of the line end. */
const isBlank = (line: string): boolean => line === '' || line === '\r'

const isBegin = (line: string): boolean => line.trim() === BEGIN

const requireFewLines = (text: string): void => {
  let lines = 1
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) lines += 1
  if (lines > MAX_PATCH_TEXT_LINES) throw tooMuch('patch_text_lines', lines, MAX_PATCH_TEXT_LINES)
}

/** Parses a patch line by line. Errors name the current line. */
class Parser {
  readonly #lines: readonly string[]
  #at = 0

  constructor(text: string) {
    requireFewLines(text)
    this.#lines = text.split('\n')
  }

  parse(): PatchChange[] {
    const foreign = this.#lines.findIndex((line) => !line.isWellFormed())
    if (foreign !== -1) throw this.#wrong('not Unicode text', foreign)
    // Text before the patch is an introduction or a quote.
    const begin = this.#lines.findIndex(isBegin)
    if (begin === -1) throw this.#wrong(`expected "${BEGIN}"`)
    this.#at = begin + 1
    const changes: PatchChange[] = []
    for (this.#skipBlank(); !this.#take(END); this.#skipBlank()) changes.push(this.#change())
    if (changes.length === 0) throw this.#wrong('the patch changes nothing', this.#at - 1)
    const second = this.#lines.findIndex((line, at) => at >= this.#at && isBegin(line))
    if (second !== -1) throw this.#wrong('a second patch: only one is allowed', second)
    return changes
  }

  #change(): PatchChange {
    const begin = this.#at
    const added = this.#takePath(ADD)
    if (added !== null) return { kind: 'add', path: added, content: this.#content() }
    const deleted = this.#takePath(DELETE)
    if (deleted !== null) return { kind: 'delete', path: deleted }
    const updated = this.#takePath(UPDATE)
    if (updated === null) throw this.#wrong(`expected a file or "${END}"`)
    const moveTo = this.#takePath(MOVE)
    const hunks: Hunk[] = []
    for (this.#skipBlank(); !this.#isMarker(); this.#skipBlank()) hunks.push(this.#hunk(hunks.length === 0))
    if (hunks.length === 0 && moveTo === null) throw this.#wrong('the file is not changed', begin)
    return { kind: 'update', path: updated, moveTo, hunks }
  }

  #content(): string {
    let content = ''
    for (; this.#line?.startsWith('+'); this.#at++) content += `${this.#line.slice(1)}\n`
    return content
  }

  #hunk(isFirst: boolean): Hunk {
    const line = this.#at + 1
    const contexts: string[] = []
    for (; this.#isHunkHeader(); this.#at++) {
      const context = this.#line!.slice(3)
      if (context.trim() !== '') contexts.push(context)
    }
    if (this.#at + 1 === line && !isFirst) throw this.#wrong('expected "@@"')
    const lines: PatchLine[] = []
    for (; this.#line !== undefined && !this.#isMarker() && !this.#isHunkHeader(); this.#at++) {
      // An empty context line often loses its leading blank.
      const kind = isBlank(this.#line) ? 'keep' : KINDS[this.#line[0]!]
      if (kind === undefined) throw this.#wrong('a line of a change begins with " ", "+" or "-"')
      lines.push({ kind, text: this.#line.slice(1) })
    }
    if (lines.length === 0) throw this.#wrong('expected lines of a change')
    return { contexts, lines, atEnd: this.#take(END_OF_FILE), line }
  }

  get #line(): string | undefined {
    return this.#lines[this.#at]
  }

  /** True at a line that ends a hunk, and at the end of the text, which is reported as an error. */
  #isMarker(): boolean {
    return this.#line === undefined || this.#line.startsWith('***')
  }

  #isHunkHeader(): boolean {
    return this.#line !== undefined && /^@@(\s|$)/.test(this.#line)
  }

  #take(marker: string): boolean {
    if (this.#line?.trimEnd() !== marker) return false
    this.#at += 1
    return true
  }

  #takePath(marker: string): string | null {
    if (!this.#line?.startsWith(marker)) return null
    const path = this.#line.slice(marker.length).trim()
    if (path === '') throw this.#wrong('the path is missing')
    this.#at += 1
    return path
  }

  #skipBlank(): void {
    while (this.#line !== undefined && isBlank(this.#line)) this.#at += 1
  }

  #wrong(why: string, at = this.#at): AppError {
    return new AppError('bad_request', `patch: line ${at + 1}: ${why}`, { data: { line: at + 1 } })
  }
}

/**
 * Parses `*** Begin Patch` … `*** End Patch` and ignores surrounding text. Inside are `*** Add File: P` with lines `+…`, `*** Delete File:
 * P`, and `*** Update File: P` with an optional `*** Move to: P` and hunks. A hunk starts with `@@`, optional for the first, or with
 * several `@@ line` to search for. Its lines start with a blank (keep), `-` (remove) or `+` (add). `*** End of File` puts it at the end.
 * Throws only `bad_request` with the line, and `resource_limit` above MAX_PATCH_TEXT_LINES.
 */
export const parsePatch = (text: string): PatchChange[] => new Parser(text).parse()

/** Lines of a file times hunks. The search takes up to three times as many steps of about 10 ns. */
const MAX_PATCH_STEPS = 50_000_000

/** The new text, or the hunk that does not fit. */
export type Patched = { readonly text: string } | { readonly unmatched: Hunk }

/** Comparisons from strict to lenient. They are exact, without trailing blanks, and without leading blanks either. */
const READINGS: readonly ((line: string) => string)[] = [(line) => line, (line) => line.trimEnd(), (line) => line.trim()]

/** Lines of a file, searched with the strictest comparison that finds them. */
class Lines {
  readonly #share: TimeSlice
  readonly #readings: (readonly string[])[]

  constructor(all: readonly string[], share: TimeSlice) {
    this.#share = share
    this.#readings = [all]
  }

  get all(): readonly string[] {
    return this.#readings[0]!
  }

  async find(wanted: readonly string[], from: number): Promise<number> {
    for (const [i, read] of READINGS.entries()) {
      const lines = (this.#readings[i] ??= this.all.map(read))
      const at = await new Sequence(wanted.map(read)).find(lines, from, this.#share)
      if (at !== -1) return at
    }
    return -1
  }
}

/** Position of a hunk, not before `from`, or -1 if it does not fit. A hunk without old lines goes after its context, else to the end. */
const placeOf = async (lines: Lines, { contexts, atEnd }: Hunk, before: readonly string[], from: number): Promise<number> => {
  let start = from
  for (const context of contexts) {
    const at = await lines.find([context], start)
    if (at === -1) return -1
    start = at + 1
  }
  const last = lines.all.length - before.length
  if (before.length === 0) return contexts.length > 0 && !atEnd ? start : last
  if (!atEnd) return lines.find(before, start)
  return last < start ? -1 : lines.find(before, last)
}

/**
 * Applies hunks in order, each below the last. Kept lines stay as they are in the file. Line ends and a missing final one follow the file.
 * Throws `resource_limit` for a search that would take too long, and the signal's reason.
 */
export const applyHunks = async (text: string, hunks: readonly Hunk[], share: TimeSlice): Promise<Patched> => {
  // Only if all lines agree, because a single different line end could be part of the text.
  const end = text.includes('\r\n') && !/(^|[^\r])\n/.test(text) ? '\r\n' : '\n'
  const all = text.split(end)
  const hasEnd = all.at(-1) === ''
  if (hasEnd) all.pop()
  const steps = all.length * hunks.reduce((count, { contexts }) => count + contexts.length + 1, 0)
  if (steps > MAX_PATCH_STEPS) throw tooMuch('patch_steps', steps, MAX_PATCH_STEPS)
  const lines = new Lines(all, share)
  const textOf = (line: { text: string }): string => (end === '\r\n' ? line.text.replace(/\r$/, '') : line.text)
  const result: string[][] = []
  let done = 0
  for (const hunk of hunks) {
    const before = hunk.lines.filter(({ kind }) => kind !== 'add').map(textOf)
    const place = await placeOf(lines, hunk, before, done)
    if (place === -1) return { unmatched: hunk }
    result.push(all.slice(done, place))
    done = place
    for (const line of hunk.lines) {
      if (line.kind === 'add') result.push([textOf(line)])
      else if (line.kind === 'keep') result.push([all[done++]!])
      else done += 1
    }
  }
  result.push(all.slice(done))
  const changed = result.flat()
  return { text: changed.join(end) + (hasEnd && changed.length > 0 ? end : '') }
}
