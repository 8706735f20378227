import { AppError } from '../base/errors.ts'
import type { TimeShare } from '../base/time-sharing.ts'
import { namesOf } from '../base/way.ts'
import { expandBraces } from './braces.ts'
import { tooMuch } from './refusals.ts'

/** Characters of a pattern. */
export const MAX_GLOB_PATTERN = 1_024

const MANY = Symbol('*')
const ONE = Symbol('?')

interface OneOf {
  readonly negated: boolean
  /** From and to, both in it, by code point. */
  readonly ranges: readonly (readonly [string, string])[]
}

/** A string is that one character. */
type Token = string | typeof MANY | typeof ONE | OneOf

/** One name of a pattern; what follows it, null at the end. */
interface Step {
  /** Null: `**`, any names, also none. */
  readonly tokens: readonly Token[] | null
  readonly next: Step | null
  /** The pattern ends in a slash: only a directory is meant. Of the last step. */
  readonly onlyDirectory: boolean
}

/** What comparing may take, and what it has taken so far. */
export class GlobWork {
  readonly #share: TimeShare
  readonly #max: number
  #steps = 0

  constructor(components: { share: TimeShare }, init: { max: number }) {
    this.#share = components.share
    this.#max = init.max
  }

  /** Comparing has taken more steps than it may. */
  get isTooMuch(): boolean {
    return this.#steps > this.#max
  }

  /** Does a name fit one step? When that was too much, nothing fits any more. */
  async fits(step: Step, characters: readonly string[]): Promise<boolean> {
    if (this.isTooMuch) return false
    if (this.#share.due) await this.#share.turn()
    this.#steps += 1
    if (characters[0] === '.' && step.tokens?.[0] !== '.') return false
    if (step.tokens === null) return true
    const { isFit, steps } = tokensFit(step.tokens, characters)
    this.#steps += steps
    return isFit
  }
}

/** How far into a pattern a directory is: the steps that a name in it may be the next of. */
export class GlobPosition {
  readonly #steps: ReadonlySet<Step>

  constructor(steps: Iterable<Step>) {
    this.#steps = closed(steps)
  }

  /** Is what stands in the directory under this name meant? */
  async fits(name: string, isDirectory: boolean, work: GlobWork): Promise<boolean> {
    const characters = [...name]
    for (const step of this.#steps)
      if (step.next === null && (isDirectory || !step.onlyDirectory) && (await work.fits(step, characters))) return true
    return false
  }

  /** The position in the directory of this name; null when nothing below it can be meant. */
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

/** With the steps behind every `**`, which may stand for no name. */
const closed = (steps: Iterable<Step>): Set<Step> => {
  const all = new Set(steps)
  // A set shows its reader what is added meanwhile.
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

/** Goes back to the last `*` alone: an earlier one that took more could not help. So the steps are at most tokens times characters. */
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

/** `[abc]`, `[a-z]`, `[!a]`, `[\]a]`, whose `[` is at `open`. Null when nothing closes it: then it is a plain character. */
const oneOf = (characters: readonly string[], open: number): { token: OneOf; end: number } | null => {
  const negated = characters[open + 1] === '!' || characters[open + 1] === '^'
  const first = open + (negated ? 2 : 1)
  const ranges: [string, string][] = []
  let at = first
  const next = (): string | undefined => characters[characters[at] === '\\' ? (at += 2) - 1 : at++]
  // A `]` that comes first is one of them.
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
    // What closes none closes none of those behind it.
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

/** The steps of a pattern without braces: the first of them, `none` when it has no name, null when it leads out. */
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
 * A pattern, at the directory that it begins in. `*` any characters of a name, `?` one, `[a-z]` one of these, `[!a]` one of
 * the others, `**` as a whole name any directories or none, at the end all that is below, `{a,b}` either, `\` takes the
 * next character as it is, `/` at the end only directories. A dot that begins a name must be in the pattern. Null when it
 * begins at `/` or has a `..`. Throws `bad_request` for an empty one, `resource_limit` above MAX_GLOB_PATTERN or when its
 * braces stand for more than MAX_GLOB_EXPANDED.
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

/** Divides a pattern that begins at `/`: the directory that its first names spell, and the pattern from there. Its last name stays one. */
export const splitPattern = (pattern: string): { readonly path: string; readonly pattern: string } => {
  const names = pattern.split('/')
  const first = names.findIndex((name) => /[*?[{\\]/.test(name))
  const last = names.findLastIndex((name) => name !== '')
  const cut = Math.max(1, first === -1 ? last : Math.min(first, last))
  return { path: names.slice(0, cut).join('/') || '/', pattern: names.slice(cut).join('/') }
}
