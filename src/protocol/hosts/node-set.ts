import { AppError } from '../../base/errors.ts'
import { isHexId } from '../ids.ts'
import { MAX_FANOUT_HOSTS, MAX_HOST_WORDS, MAX_NODE_DIGITS } from '../limits/fleet.ts'
import { MAX_NAME } from '../limits/wire.ts'

/** A range such as `01-16/2`, with first number, last number and step. Numbers have at least `width` digits. */
interface Range {
  readonly first: number
  readonly last: number
  readonly step: number
  readonly width: number
}

/** A pattern such as `rack[1-4]-node[01-16]`. It has texts, with the numbers of a bracket between each two. */
interface NodePattern {
  readonly texts: readonly string[]
  readonly brackets: readonly (readonly Range[])[]
}

/** A parsed and counted node set, not yet expanded. */
export interface NodeSet {
  readonly patterns: readonly NodePattern[]
  /** Number of names. A repeated name counts twice. */
  readonly count: number
}

const TEXT = /[A-Za-z0-9._-]*/y
const RANGE = new RegExp(
  `([0-9]{1,${MAX_NODE_DIGITS}})(?:-([0-9]{1,${MAX_NODE_DIGITS}})(?:/([0-9]{1,${MAX_NODE_DIGITS}}))?)?(?=[,\\]])`,
  'y',
)

const TOO_LONG = new RegExp(`[0-9]{${MAX_NODE_DIGITS + 1}}`)

/** Throws with the reason and the character of the text, counted from one. */
const refuse = (text: string, at: number, why: string): never => {
  const around = JSON.stringify(text.slice(Math.max(0, at - 20), at + 20))
  throw new AppError('bad_request', `invalid node set ${around}: ${why} (character ${at + 1})`, { data: { at: at + 1 } })
}

const isPadded = (digits: string): boolean => digits.length > 1 && digits.startsWith('0')

const notRange = (text: string, at: number, end: number): never => {
  const [piece = ''] = text.slice(at, end).split(',', 1)
  if (piece === '') return refuse(text, at, 'a number is missing in brackets')
  if (piece.includes('[')) return refuse(text, at + piece.indexOf('['), 'nested brackets')
  if (TOO_LONG.test(piece)) return refuse(text, at, `a number has more than ${MAX_NODE_DIGITS} digits`)
  return refuse(text, at, 'invalid range; expected N, N-M or N-M/STEP')
}

/** `1-20`, `30`, `1-9/2`. */
const rangeAt = (text: string, at: number, end: number): { range: Range; length: number } => {
  RANGE.lastIndex = at
  const [whole, from, to = from, by = '1'] = RANGE.exec(text) ?? notRange(text, at, end)
  const width = isPadded(from!) ? from!.length : 0
  const range: Range = { first: Number(from), last: Number(to), step: Number(by), width }
  if (range.last < range.first) refuse(text, at, 'a range goes backwards')
  if (range.step === 0) refuse(text, at, 'the step of a range is 0')
  if ((width > 0 || isPadded(to!)) && from!.length !== to!.length)
    refuse(text, at, 'both ends of a range with leading zeros must have the same number of digits')
  return { range, length: whole.length }
}

const countOf = ({ first, last, step }: Range): number => Math.floor((last - first) / step) + 1

/** Parses one name or pattern, up to the next comma. */
class PatternReader {
  readonly texts: string[] = []
  readonly brackets: Range[][] = []
  count = 1
  at: number
  readonly #text: string
  readonly #max: number
  /** Characters of the longest name. */
  #longest = 0

  constructor(text: string, from: number, max: number) {
    this.#text = text
    this.#max = max
    this.at = from
    this.#readText()
    while (this.#text[this.at] === '[') this.#readBracket()
    const [first] = this.texts
    if (first === '' && this.brackets.length === 0) refuse(text, from, 'a name is missing')
  }

  #readText(): void {
    TEXT.lastIndex = this.at
    const [found] = TEXT.exec(this.#text)!
    this.texts.push(found)
    this.#lengthen(found.length)
    this.at += found.length
    const next = this.#text[this.at]
    if (next === ']') refuse(this.#text, this.at, '"]" without "["')
    if (next !== undefined && next !== ',' && next !== '[') refuse(this.#text, this.at, `a name cannot contain ${JSON.stringify(next)}`)
    if (next === '[' && found === '' && this.brackets.length > 0) refuse(this.#text, this.at, 'two brackets without text between them')
  }

  #readBracket(): void {
    const end = this.#text.indexOf(']', this.at)
    if (end === -1) refuse(this.#text, this.at, 'missing "]"')
    const ranges: Range[] = []
    let count = 0
    let at = this.at
    do {
      const { range, length } = rangeAt(this.#text, at + 1, end)
      ranges.push(range)
      count += countOf(range)
      at += 1 + length
      if (count * this.count > this.#max) this.#tooMany(count * this.count)
    } while (at < end)
    this.brackets.push(ranges)
    this.count *= count
    this.#lengthen(Math.max(...ranges.map(({ last, width }) => Math.max(width, String(last).length))))
    this.at = end + 1
    this.#readText()
  }

  #lengthen(by: number): void {
    this.#longest += by
    if (this.#longest > MAX_NAME) refuse(this.#text, this.at, `a name has more than ${MAX_NAME} characters`)
  }

  #tooMany(count: number): never {
    const many = Number.isSafeInteger(count) ? `${count} hosts` : 'more hosts than can be counted'
    return refuse(this.#text, this.at, `this selects ${many}; the limit is ${this.#max}`)
  }
}

/**
 * Parses `web[1-20,30]`, `rack[1-4]-node[01-16]`, `[1-9/2]`, `alice`, and several of them with commas, and counts the names before
 * expanding. Throws `bad_request` with the position, also for more than `max` names.
 */
export const parseNodeSet = (text: string, max = MAX_FANOUT_HOSTS): NodeSet => {
  if (text.length > MAX_HOST_WORDS) refuse(text, MAX_HOST_WORDS, `more than ${MAX_HOST_WORDS} characters`)
  const patterns: NodePattern[] = []
  let count = 0
  let at = -1
  do {
    const { texts, brackets, at: end, count: more } = new PatternReader(text, at + 1, max)
    patterns.push({ texts, brackets })
    count += more
    if (count > max) refuse(text, at + 1, `this and the terms before it select ${count} hosts; the limit is ${max}`)
    at = end
  } while (at < text.length)
  return { patterns, count }
}

const numbersOf = (ranges: readonly Range[]): string[] =>
  ranges.flatMap((range) =>
    Array.from({ length: countOf(range) }, (_, index) => String(range.first + index * range.step).padStart(range.width, '0')),
  )

const namesOf = ({ texts, brackets }: NodePattern): string[] =>
  brackets.reduce<string[]>(
    (names, ranges, index) => {
      const endings = numbersOf(ranges).map((digits) => digits + texts[index + 1]!)
      return names.flatMap((name) => endings.map((ending) => name + ending))
    },
    [texts[0]!],
  )

/** The names of a node set in its order, without duplicates. */
export const expandNodeSet = (set: NodeSet): string[] => [...new Set(set.patterns.flatMap(namesOf))]

/** A name split into its numbers and the texts around them. It has one text more than numbers. */
interface CutName {
  readonly name: string
  readonly texts: readonly string[]
  readonly numbers: readonly string[]
}

/** If more numbers differ, the last ones are folded. */
const MAX_FOLDED = 4
const FOLDABLE = /^[A-Za-z0-9._-]+$/
const NUMBER = new RegExp(`(?<![0-9])[0-9]{1,${MAX_NODE_DIGITS}}(?![0-9])`, 'g')

/** An ID or an invalid name is not split. */
const cut = (name: string): CutName => {
  const isWhole = isHexId(name) || !FOLDABLE.test(name)
  return isWhole ? { name, texts: [name], numbers: [] } : { name, texts: name.split(NUMBER), numbers: name.match(NUMBER) ?? [] }
}

/** Shorter first, so that numbers with equally many leading zeros are adjacent. */
const byDigits = (a: string, b: string): number => a.length - b.length || (a < b ? -1 : Number(a > b))

const byName = (a: CutName, b: CutName): number => {
  for (const [index, text] of a.texts.entries()) {
    const other = b.texts[index]
    if (text !== other) return other === undefined || text > other ? 1 : -1
    const order = Number(a.numbers[index] ?? -1) - Number(b.numbers[index] ?? -1)
    if (order !== 0) return order
    const digits = byDigits(a.numbers[index] ?? '', b.numbers[index] ?? '')
    if (digits !== 0) return digits
  }
  return a.texts.length - b.texts.length
}

/** `1-7,9-20`, from numbers in the order of `byDigits`. */
const rangesOf = (numbers: readonly string[]): string => {
  const left = new Set(numbers)
  const ranges: string[] = []
  for (const first of numbers) {
    if (!left.delete(first)) continue
    let last = first
    for (;;) {
      const next = String(Number(last) + 1).padStart(last.length, '0')
      if ((isPadded(first) && next.length > first.length) || !left.delete(next)) break
      last = next
    }
    ranges.push(first === last ? first : `${first}-${last}`)
  }
  return ranges.join(',')
}

/** Names that differ only in some numbers, each with a list of values. */
interface Block {
  readonly numbers: readonly (readonly string[])[]
  /** Ranges of the values, which identify the block. */
  readonly ranges: readonly string[]
}

/** Replaces `Map.groupBy`, which Node 20 does not have. */
const grouped = <T>(items: readonly T[], keyOf: (item: T) => string): T[][] => {
  const groups = new Map<string, T[]>()
  for (const item of items) {
    const group = groups.get(keyOf(item))
    if (group === undefined) groups.set(keyOf(item), [item])
    else group.push(item)
  }
  return [...groups.values()]
}

/** Merges blocks that differ only in this number. */
const united = (blocks: readonly Block[], at: number): Block[] =>
  grouped(blocks, ({ ranges }) => ranges.with(at, '').join(' ')).map((same) => {
    const [first, ...others] = same
    if (others.length === 0) return first!
    const numbers = same.flatMap((block) => block.numbers[at]!).toSorted(byDigits)
    return { numbers: first!.numbers.with(at, numbers), ranges: first!.ranges.with(at, rangesOf(numbers)) }
  })

/** Repeats until no two blocks can be merged. */
const unitedInOrder = (blocks: readonly Block[], order: readonly number[]): readonly Block[] => {
  let before = blocks
  for (;;) {
    const after = order.reduce((some: readonly Block[], at) => united(some, at), before)
    if (after.length === before.length) return after
    before = after
  }
}

const textOf = (texts: readonly string[], { ranges }: Block): string =>
  texts.reduce((text, next, index) => {
    const range = ranges[index - 1]!
    return `${text}${/[,-]/.test(range) ? `[${range}]` : range}${next}`
  })

/** Folds names of one shape from the end and from the beginning, and returns the shorter result. */
const foldAlike = (names: readonly CutName[]): string[] => {
  const [{ texts, numbers }] = names as [CutName]
  const differing = numbers.flatMap((first, at) => (names.some((other) => other.numbers[at] !== first) ? [at] : []))
  const folded = differing.slice(-MAX_FOLDED)
  const alone = differing.slice(0, -MAX_FOLDED)
  return grouped(names, (name) => alone.map((at) => name.numbers[at]).join(' ')).flatMap((group) => {
    const blocks = group.map((name): Block => ({ numbers: name.numbers.map((digits) => [digits]), ranges: name.numbers }))
    const [ending, beginning] = [folded.toReversed(), folded].map((order) =>
      unitedInOrder(blocks, order).map((block) => textOf(texts, block)),
    )
    return beginning!.join().length < ending!.join().length ? beginning! : ending!
  })
}

/**
 * The shortest text for exactly these names in any order, such as `web[1-7,9-20],db`. Leading zeros are kept. Several numbers of a name are
 * folded if that is exact. Invalid names are kept as they are.
 */
export const foldNodeSet = (names: readonly string[]): string => {
  const sorted = [...new Set(names)].map(cut).toSorted(byName)
  return grouped(sorted, ({ texts }) => texts.join('\n'))
    .flatMap(foldAlike)
    .join()
}
