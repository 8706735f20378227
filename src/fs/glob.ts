import { posix } from 'node:path'
import { AppError } from '../base/errors.ts'
import { namesOf } from '../base/path-resolution.ts'
import type { TimeSlice } from '../base/time-slices.ts'
import type { FilePermit } from '../policy/local/file-permit.ts'
import { MAX_LISTED } from '../protocol/limits/rexd.ts'
import type { Result } from '../protocol/rexd/results.ts'
import { beneath } from './beneath.ts'
import { forbidden, namingPath, pathOf, requireCount, requirePermit, systemError, tooMuch } from './refusals.ts'
import { BoundedEntries, entriesBelow } from './tree.ts'

/** Total characters of an expanded pattern. It bounds the comparisons for one name. */
export const MAX_GLOB_EXPANDED = 16_384

/** The first braces with a comma directly inside. Others are plain characters. */
const firstBraces = (text: string): { readonly before: string; readonly choices: readonly string[]; readonly after: string } | null => {
  for (let open = text.indexOf('{'); open !== -1; open = text.indexOf('{', open + 1)) {
    if (isEscaped(text, open)) continue
    const commas: number[] = []
    const close = closingBrace(text, open, commas)
    if (close === -1 || commas.length === 0) continue
    const bounds = [open, ...commas, close]
    const choices = bounds.slice(1).map((end, i) => text.slice(bounds[i]! + 1, end))
    return { before: text.slice(0, open), choices, after: text.slice(close + 1) }
  }
  return null
}

const isEscaped = (text: string, at: number): boolean => {
  let slashes = 0
  while (text[at - 1 - slashes] === '\\') slashes += 1
  return slashes % 2 === 1
}

/** Index of the closing brace for `open`, or -1 if absent. Adds its commas to `commas`. */
const closingBrace = (text: string, open: number, commas: number[]): number => {
  let depth = 0
  for (let at = open; at < text.length; at++) {
    if (text[at] === '\\') at += 1
    else if (text[at] === '{') depth += 1
    else if (text[at] === '}' && --depth === 0) return at
    else if (text[at] === ',' && depth === 1) commas.push(at)
  }
  return -1
}

/** Expands `{a,b}`. Throws `resource_limit` above MAX_GLOB_EXPANDED characters. */
export const expandBraces = (pattern: string): string[] => {
  const braces = firstBraces(pattern)
  if (braces === null) return [pattern]
  const { before, choices, after } = braces
  const ends = expandBraces(after)
  const expanded: string[] = []
  let length = 0
  for (const choice of choices.flatMap(expandBraces)) {
    for (const end of ends) {
      const whole = before + choice + end
      length += whole.length + 1
      if (length > MAX_GLOB_EXPANDED) throw tooMuch('pattern_expanded', length, MAX_GLOB_EXPANDED)
      expanded.push(whole)
    }
  }
  return expanded
}

/** Maximum length of a pattern. */
export const MAX_GLOB_PATTERN = 1_024

const MANY = Symbol('*')
const ONE = Symbol('?')

interface OneOf {
  readonly negated: boolean
  /** Inclusive ranges of code points. */
  readonly ranges: readonly (readonly [string, string])[]
}

/** A string is a literal character. */
type Token = string | typeof MANY | typeof ONE | OneOf

/** One name of a pattern. `next` is null at the end. */
interface Step {
  /** Null for `**`, which means any number of names. */
  readonly tokens: readonly Token[] | null
  readonly next: Step | null
  /** The pattern ends in a slash and matches only directories. Set for the last step. */
  readonly onlyDirectory: boolean
}

/** Budget of comparisons. */
export class GlobWork {
  readonly #share: TimeSlice
  readonly #max: number
  #steps = 0

  constructor(components: { share: TimeSlice }, init: { max: number }) {
    this.#share = components.share
    this.#max = init.max
  }

  get isTooMuch(): boolean {
    return this.#steps > this.#max
  }

  /** Compares a name with a step. Returns false once the budget is used up. */
  async fits(step: Step, characters: readonly string[]): Promise<boolean> {
    if (this.isTooMuch) return false
    if (this.#share.shouldYield) await this.#share.yieldTurn()
    this.#steps += 1
    if (characters[0] === '.' && step.tokens?.[0] !== '.') return false
    if (step.tokens === null) return true
    const { isFit, steps } = tokensFit(step.tokens, characters)
    this.#steps += steps
    return isFit
  }
}

/** Position in a pattern, with the steps that a name in a directory may match. */
export class GlobPosition {
  readonly #steps: ReadonlySet<Step>

  constructor(steps: Iterable<Step>) {
    this.#steps = closed(steps)
  }

  async fits(name: string, isDirectory: boolean, work: GlobWork): Promise<boolean> {
    const characters = [...name]
    for (const step of this.#steps)
      if (step.next === null && (isDirectory || !step.onlyDirectory) && (await work.fits(step, characters))) return true
    return false
  }

  /** The position in this subdirectory, or null if nothing below it can match. */
  async below(name: string, work: GlobWork): Promise<GlobPosition | null> {
    const characters = [...name]
    const steps: Step[] = []
    for (const step of this.#steps) {
      if (step.tokens !== null && step.next === null) continue
      if (await work.fits(step, characters)) steps.push(step.tokens === null ? step : step.next!)
    }
    return steps.length === 0 ? null : new GlobPosition(steps)
  }
}

/** Adds the steps after every `**`, which may match no name. */
const closed = (steps: Iterable<Step>): Set<Step> => {
  const all = new Set(steps)
  // Iterating a set also visits added elements.
  for (const { tokens, next } of all) if (tokens === null && next !== null) all.add(next)
  return all
}

const tokenFits = (token: Token | undefined, character: string): boolean => {
  if (token === ONE || token === character) return true
  if (typeof token !== 'object') return false
  const point = character.codePointAt(0)!
  return token.negated !== token.ranges.some(([from, to]) => from.codePointAt(0)! <= point && point <= to.codePointAt(0)!)
}

const costOf = (token: Token | undefined): number => (typeof token === 'object' ? token.ranges.length : 1)

/** Backtracks only to the last `*`, because an earlier one could not help. So the steps are at most tokens times characters. */
const tokensFit = (tokens: readonly Token[], characters: readonly string[]): { readonly isFit: boolean; readonly steps: number } => {
  let [at, token, lastMany, took, steps] = [0, 0, -1, 0, 0]
  while (at < characters.length) {
    steps += costOf(tokens[token])
    if (tokens[token] === MANY) {
      lastMany = token++
      took = at
    } else if (tokenFits(tokens[token], characters[at]!)) {
      token += 1
      at += 1
    } else if (lastMany !== -1) {
      token = lastMany + 1
      at = ++took
    } else return { isFit: false, steps }
  }
  while (tokens[token] === MANY) token += 1
  return { isFit: token === tokens.length, steps }
}

/** Parses `[abc]`, `[a-z]`, `[!a]`, `[\]a]` at `open`. Null if it is not closed, so that `[` is a plain character. */
const oneOf = (characters: readonly string[], open: number): { token: OneOf; end: number } | null => {
  const negated = characters[open + 1] === '!' || characters[open + 1] === '^'
  const first = open + (negated ? 2 : 1)
  const ranges: [string, string][] = []
  let at = first
  const next = (): string | undefined => characters[characters[at] === '\\' ? (at += 2) - 1 : at++]
  // A `]` in first position is a member.
  while (at === first || characters[at] !== ']') {
    const from = next()
    const isRange = characters[at] === '-' && characters[at + 1] !== ']'
    if (isRange) at += 1
    const to = isRange ? next() : from
    if (from === undefined || to === undefined) return null
    ranges.push([from, to])
  }
  return { token: { negated, ranges }, end: at }
}

const tokensOf = (segment: string): Token[] => {
  const characters = [...segment]
  const tokens: Token[] = []
  let mayClose = true
  for (let at = 0; at < characters.length; at++) {
    const character = characters[at]!
    const set: ReturnType<typeof oneOf> = character === '[' && mayClose ? oneOf(characters, at) : null
    // If this bracket is not closed, later ones are not either.
    if (character === '[') mayClose = set !== null
    if (set !== null) {
      tokens.push(set.token)
      at = set.end
    } else if (character === '*') {
      if (tokens.at(-1) !== MANY) tokens.push(MANY)
    } else if (character === '?') tokens.push(ONE)
    else if (character === '\\' && at + 1 < characters.length) tokens.push(characters[++at]!)
    else tokens.push(character)
  }
  return tokens
}

const isParent = (tokens: readonly Token[]): boolean => tokens.length === 2 && tokens.every((token) => token === '.')

/** Parses a pattern without braces. Returns its first step, `none` if it has no name, or null if it leads out of its directory. */
const stepsOf = (pattern: string): Step | 'none' | null => {
  if (pattern.startsWith('/')) return null
  let next: Step | null = null
  for (const segment of namesOf(pattern).reverse()) {
    const tokens = segment === '**' ? null : tokensOf(segment)
    if (tokens !== null && isParent(tokens)) return null
    next = { tokens, next, onlyDirectory: next === null && pattern.endsWith('/') }
  }
  return next ?? 'none'
}

/**
 * Parses a pattern. `*` matches any characters of a name, `?` one, `[a-z]` one of a range, `[!a]` any other. `**` as a whole name matches
 * any number of directories, and at the end everything below. `{a,b}` matches either. `\` escapes. A final `/` matches only directories. A
 * leading dot must be explicit. Null if it starts with `/` or contains `..`. Throws `bad_request` for an empty pattern, `resource_limit`
 * above MAX_GLOB_PATTERN or MAX_GLOB_EXPANDED.
 */
export const globOf = (pattern: string): GlobPosition | null => {
  if (pattern.length > MAX_GLOB_PATTERN) throw tooMuch('pattern_length', pattern.length, MAX_GLOB_PATTERN)
  if (pattern.startsWith('/')) return null
  const steps = expandBraces(pattern).map(stepsOf)
  if (steps.includes(null)) return null
  const real = steps.filter((step) => step !== null && step !== 'none')
  if (real.length === 0) throw new AppError('bad_request', 'pattern: it has no name in it')
  return new GlobPosition(real)
}

/** Splits an absolute pattern into the directory of its literal first names and the rest, which keeps at least one name. */
export const splitPattern = (pattern: string): { readonly path: string; readonly pattern: string } => {
  const names = pattern.split('/')
  const first = names.findIndex((name) => /[*?[{\\]/.test(name))
  const last = names.findLastIndex((name) => name !== '')
  const cut = Math.max(1, first === -1 ? last : Math.min(first, last))
  return { path: names.slice(0, cut).join('/') || '/', pattern: names.slice(cut).join('/') }
}

/** Names compared with one pattern, ten times those of a large source tree. */
const MAX_GLOB_LOOKS = 1_000_000
/** Characters compared for one pattern. They take a second or two, and are ten times a usual pattern's need for all names. */
const MAX_GLOB_STEPS = 200_000_000

export interface GlobOptions {
  /** Pattern of paths below the permit's, as for `globOf`. */
  readonly pattern: string
  /** Default and maximum: MAX_LISTED. */
  readonly maxMatches?: number
}

export type Matches = Omit<Result<'fs.glob'>, 'path'>

/** Finds the matching paths in a listing of a directory, in which a directory precedes its entries. Throws as `globFiles`. */
export const matchesIn = async (
  entries: Iterable<{ readonly path: string; readonly isDirectory: boolean }>,
  { directory, pattern, maxMatches }: { readonly directory: string; readonly pattern: string; readonly maxMatches: number },
  share: TimeSlice,
): Promise<Matches> => {
  const glob = globOf(pattern)
  if (glob === null) throw new AppError('forbidden_path', `${pattern} is a pattern that leads out of its directory`)
  const answer = new BoundedEntries<{ path: string }>(maxMatches)
  const work = new GlobWork({ share }, { max: MAX_GLOB_STEPS })
  const positions = new Map<string, GlobPosition | null>([['.', glob]])
  for (const { path, isDirectory } of entries) {
    const position = positions.get(posix.dirname(path)) ?? null
    const name = posix.basename(path)
    if (position === null) continue
    if (isDirectory) positions.set(path, await position.below(name, work))
    const isFit = await position.fits(name, isDirectory, work)
    if (work.isTooMuch) answer.truncated = true
    if (work.isTooMuch || (isFit && !answer.add({ path: posix.join(directory, path) }))) break
  }
  return { matches: answer.sorted().map(({ path }) => path), truncated: answer.truncated }
}

/**
 * Finds paths of any type below a directory. Links are matched but not followed. Directories without possible matches are skipped. Throws
 * `forbidden_path` for a pattern with `/` in front or `..`, `bad_request` for an empty one, `resource_limit` for one that is too long,
 * `file_error` ENOTDIR for a file, and the signal's reason. Above MAX_GLOB_LOOKS or MAX_GLOB_STEPS the answer is truncated.
 */
export const globFiles = async (
  permit: FilePermit,
  { pattern, maxMatches = MAX_LISTED }: GlobOptions,
  share: TimeSlice,
): Promise<Matches> => {
  requirePermit(permit, 'read')
  requireCount('max_matches', maxMatches)
  if (maxMatches > MAX_LISTED) throw tooMuch('max_matches', maxMatches, MAX_LISTED)
  const glob = globOf(pattern)
  if (glob === null) throw forbidden(permit, pattern, 'is a pattern that leads out of its directory')
  return namingPath(permit, async () => {
    using place = await beneath(permit)
    if (place.found === null) throw systemError('ENOENT')
    if (!place.found.info.isDirectory()) throw systemError('ENOTDIR')
    const answer = new BoundedEntries<{ path: string }>(maxMatches)
    const onTooDeep = (): void => void (answer.truncated = true)
    const work = new GlobWork({ share }, { max: MAX_GLOB_STEPS })
    const enter = ({ carried, name }: { carried: GlobPosition; name: string }): Promise<GlobPosition | null> => carried.below(name, work)
    let looks = 0
    for await (const { path, name, type, carried } of entriesBelow(place.found.handle, { carried: glob, enter, onTooDeep, share })) {
      const isFit = await carried.fits(name, type === 'dir', work)
      if (++looks > MAX_GLOB_LOOKS || work.isTooMuch) {
        answer.truncated = true
        break
      }
      if (isFit && !answer.add({ path: posix.join(pathOf(permit), path) })) break
    }
    return { matches: answer.sorted().map(({ path }) => path), truncated: answer.truncated }
  })
}
