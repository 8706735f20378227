import { AppError } from '../base/errors.ts'
import { tooMuch } from './refusals.ts'

/** Lines of one patch: read, each costs up to 160 bytes and a microsecond, all of them in one piece. */
export const MAX_PATCH_TEXT_LINES = 200_000

export interface PatchLine {
  readonly kind: 'keep' | 'remove' | 'add'
  readonly text: string
}

/** One place of a file that is changed. */
export interface Hunk {
  /** Lines that stand somewhere above it, each below the one before. */
  readonly contexts: readonly string[]
  readonly lines: readonly PatchLine[]
  /** Its last line is the last of the file. */
  readonly atEnd: boolean
  /** Where it begins in the patch, from 1. */
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

/** A carriage return belongs to the end of a line. */
const isBlank = (line: string): boolean => line === '' || line === '\r'

const isBegin = (line: string): boolean => line.trim() === BEGIN

const requireFewLines = (text: string): void => {
  let lines = 1
  for (let at = text.indexOf('\n'); at !== -1; at = text.indexOf('\n', at + 1)) lines += 1
  if (lines > MAX_PATCH_TEXT_LINES) throw tooMuch('patch_text_lines', lines, MAX_PATCH_TEXT_LINES)
}

/** Reads a patch line by line; where it stands is what a complaint names. */
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
    // What stands around a patch is how its author introduced or quoted it.
    const begin = this.#lines.findIndex(isBegin)
    if (begin === -1) throw this.#wrong(`expected "${BEGIN}"`)
    this.#at = begin + 1
    const changes: PatchChange[] = []
    for (this.#skipBlank(); !this.#take(END); this.#skipBlank()) changes.push(this.#change())
    if (changes.length === 0) throw this.#wrong('the patch changes nothing', this.#at - 1)
    const second = this.#lines.findIndex((line, at) => at >= this.#at && isBegin(line))
    if (second !== -1) throw this.#wrong('a second patch: there is one at a time', second)
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
      // A line of context that is empty often loses its blank.
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

  /** Nothing of a hunk begins like this. The end of the text is one too, so that it is complained about. */
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
 * Reads a patch in an envelope: `*** Begin Patch`, then `*** Add File: P` with lines `+…`, `*** Delete File: P`, or
 * `*** Update File: P` with perhaps `*** Move to: P` and hunks, then `*** End Patch`; text around it is passed over. A hunk begins with `@@`, which the
 * first may lack, or several `@@ line` to go to first; its lines begin with a blank (stays), `-` (goes) or `+` (comes);
 * `*** End of File` behind it says that it is at the end. Throws nothing but `bad_request`, which names the line, and `resource_limit` above MAX_PATCH_TEXT_LINES.
 */
export const parsePatch = (text: string): PatchChange[] => new Parser(text).parse()
