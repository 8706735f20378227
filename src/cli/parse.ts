import { parseArgs } from 'node:util'
import type { AppError } from '../base/errors.ts'
import { edits, shellWords } from '../base/format.ts'
import { type GivenOptions, givenOptions } from '../base/hint.ts'
import {
  type CommandPath,
  type CommandSpec,
  HELP_OPTION,
  type OptionSpec,
  VERSION_OPTION,
  argumentName,
  isVariadic,
  optionParts,
  optionsOf,
  pathText,
} from './command.ts'

const UNIT_BYTES = { '': 1, K: 1024, M: 1024 ** 2, G: 1024 ** 3 } as const

/** Bytes of `65536`, `64K`, `8M` or `1G`, or null for any other text. */
export const sizeOf = (text: string): number | null => {
  const [, count, unit = ''] = /^(0|[1-9][0-9]{0,11})([KMG]?)$/.exec(text) ?? []
  return count === undefined ? null : Number(count) * UNIT_BYTES[unit as keyof typeof UNIT_BYTES]
}

const UNIT_MS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 } as const

/** Milliseconds of `90s`, `15m`, `8h` or `30d`, or null for any other text and for zero. */
export const durationOf = (text: string): number | null => {
  const [, count, unit] = /^([1-9][0-9]{0,8})([smhd])$/.exec(text) ?? []
  return count === undefined ? null : Number(count) * UNIT_MS[unit as keyof typeof UNIT_MS]
}

/** A word with more edits is not suggested. */
const MAX_EDITS = 3
const MIN_ALIKE = 0.4

/** Edits to the whole candidate, or one more than to a part of it between dashes. */
const distanceOf = (word: string, candidate: string): number => {
  const parts = candidate.split('-')
  return Math.min(edits(word, candidate), ...(parts.length === 1 ? [] : parts.map((part) => edits(word, part) + 1)))
}

/** The suggestion `. Did you mean exec?`, or an empty text without a close candidate. */
export const didYouMean = (word: string, candidates: readonly string[], prefix = ''): string => {
  const close = candidates
    .map((candidate) => ({ candidate, distance: distanceOf(word, candidate), length: Math.max(word.length, candidate.length) }))
    .filter(({ candidate, distance, length }) => candidate.length > 1 && distance <= MAX_EDITS && 1 - distance / length > MIN_ALIKE)
  const best = Math.min(...close.map(({ distance }) => distance))
  return suggestion(close.filter(({ distance }) => distance === best).map(({ candidate }) => `${prefix}${candidate}`))
}

const suggestion = (words: readonly string[]): string =>
  words.length === 0 ? '' : `. Did you mean ${words.length > 1 ? 'one of ' : ''}${[...words].sort().join(', ')}?`

/** Makes the error of an invalid line. `command` is the one whose help to read. */
export type UsageError = (problem: string, command: string) => AppError

/** Makes such a suggestion or an empty text. */
type Suggest = typeof didYouMean

type Values = ReadonlyMap<string, readonly string[]>

/** A parsed line with a command, its options and its words. */
export class CommandLine {
  /** The words of the command after the program's name, such as `contacts pin`, or empty for the program itself. */
  readonly command: string
  readonly words: readonly string[]
  /** The words after `--`, or null without it. */
  readonly behindDashes: readonly string[] | null
  readonly #path: CommandPath
  readonly #values: Values

  constructor(path: CommandPath, values: Values, words: readonly string[], behindDashes: readonly string[] | null) {
    this.#path = path
    this.command = path
      .slice(1)
      .map(({ name }) => name)
      .join(' ')
    this.words = words
    this.behindDashes = behindDashes
    this.#values = values
  }

  /** The options that a hint about this line repeats. */
  get given(): GivenOptions {
    return givenOptions(this.#path[0].name, this)
  }

  has(name: string): boolean {
    return this.#values.has(name)
  }

  /** The last value given, or the default. */
  value(name: string): string | null {
    return this.#values.get(name)?.at(-1) ?? optionsOf(this.#path).find((option) => optionParts(option).name === name)?.default ?? null
  }

  /** The last value given after the command, for an option that the program has by the same name. */
  ownValue(name: string): string | null {
    return this.#values.get(ownKey(name))?.at(-1) ?? null
  }

  /** All values given. */
  values(name: string): readonly string[] {
    return this.#values.get(name) ?? []
  }
}

/** Milliseconds of a number of seconds, such as `1.5`, or null for anything else and for 0. */
export const millisecondsOf = (seconds: string): number | null =>
  /^[0-9]{1,9}(?:\.[0-9]{1,3})?$/.test(seconds) ? Math.round(Number(seconds) * 1000) || null : null

/** A line to run, or one that asks for text. `asked` is false if the help is shown because the line is incomplete, which is a failure. */
export type ParsedLine =
  | { readonly kind: 'line'; readonly line: CommandLine }
  | { readonly kind: 'help'; readonly path: CommandPath; readonly asked: boolean }
  | { readonly kind: 'version' }

/** The words after one command, up to the name of a subcommand. */
interface Level {
  readonly words: readonly string[]
  readonly behindDashes: readonly string[] | null
  readonly values: ReadonlyMap<string, readonly string[]>
  readonly problem: string | null
  readonly asks: 'help' | 'version' | null
  readonly below: { readonly command: CommandSpec; readonly rest: readonly string[] } | null
}

const tokensOf = (args: readonly string[], options: readonly OptionSpec[]) => {
  const config = options.map((option) => {
    const { name, short, takesValue } = optionParts(option)
    return [name, { type: takesValue ? 'string' : 'boolean', ...(short === undefined ? {} : { short }) }] as const
  })
  return parseArgs({ args: [...args], options: Object.fromEntries(config), strict: false, tokens: true }).tokens
}

const unknownOption = (flag: string, { hint }: CommandSpec, options: readonly OptionSpec[], suggest: Suggest): string => {
  const similar = flag.startsWith('--')
    ? suggest(
        flag.slice(2),
        options.map((option) => optionParts(option).name),
        '--',
      )
    : ''
  return `unknown option ${flag}${similar}${hint === undefined ? '' : `${similar === '' ? '.' : ''} ${hint}`}`
}

/**
 * The message for an option after the first word of another program's command. To read it as an option of x0x would change the meaning of
 * the line.
 */
const foreignOption = ([program]: CommandPath, argv: readonly string[], at: number): string =>
  `missing "--" before the command\nTry: ${program.name} ${shellWords([...argv.slice(0, at), '--', ...argv.slice(at)])}`

/** Reads the words after the first `from`, which name the command. */
const readLevel = (path: CommandPath, argv: readonly string[], from: number, suggest: Suggest): Level => {
  const args = argv.slice(from)
  const command = path.at(-1)!
  // Without `--`, every word of the other program's command is that program's.
  const isCarrier = command.carries === true && !args.includes('--')
  const own = isCarrier || command.hint !== undefined ? (command.arguments ?? []).filter((one) => !isVariadic(one)).length : Infinity
  const options = [...optionsOf(path), HELP_OPTION]
  const byName = new Map(options.map((option) => [optionParts(option).name, option]))
  const [words, places, values]: [string[], number[], Map<string, string[]>] = [[], [], new Map()]
  let problem: string | null = null
  let asks: Level['asks'] = null
  for (const token of tokensOf(args, options)) {
    if (token.kind === 'option-terminator') return { words, behindDashes: args.slice(token.index + 1), values, problem, asks, below: null }
    if (token.kind === 'positional') {
      const below = words.length === 0 && problem === null ? command.commands?.find(({ name }) => name === token.value) : undefined
      if (below !== undefined && asks === null)
        return { words, behindDashes: null, values, problem, asks, below: { command: below, rest: args.slice(token.index + 1) } }
      words.push(token.value)
      places.push(token.index)
      continue
    }
    const option = byName.get(token.name)
    const takesValue = option !== undefined && optionParts(option).takesValue
    const foreign = words[own]
    if (foreign !== undefined && (option === undefined || option === HELP_OPTION || option === VERSION_OPTION))
      problem ??= foreignOption(path, argv, from + places[own]!)
    else if (option === undefined || (!takesValue && token.value !== undefined))
      problem ??= unknownOption(token.inlineValue === true ? `${token.rawName}=${token.value}` : token.rawName, command, options, suggest)
    else if (option === HELP_OPTION) asks ??= 'help'
    else if (option === VERSION_OPTION) asks ??= 'version'
    else if (takesValue && (token.value === undefined || (token.value === '--' && !token.inlineValue)))
      problem ??= `${option.flags}: a value is missing`
    else values.set(token.name, [...(values.get(token.name) ?? []), token.value ?? ''])
  }
  return { words, behindDashes: null, values, problem, asks, below: null }
}

const optionProblem = (options: readonly OptionSpec[], values: Values): string | null => {
  const given = (name: string): boolean => values.has(name)
  for (const option of options) {
    const { name } = optionParts(option)
    if (!given(name)) continue
    const { conflicts = [], goesWith } = option
    const other = options.find((one) => one !== option && conflicts.includes(optionParts(one).name) && given(optionParts(one).name))
    if (other !== undefined) return `--${name} cannot be used with --${optionParts(other).name}`
    if (goesWith?.some(given) === false) return `--${name} needs ${goesWith.map((one) => `--${one}`).join(' or ')}`
  }
  return null
}

const wordsProblem = (path: CommandPath, words: readonly string[]): string | null => {
  const missing = path.at(-1)!.arguments?.find(({ flags }, at) => flags.startsWith('<') && at >= words.length)
  return missing === undefined ? tooManyWords(path, words) : `missing argument <${argumentName(missing)}>`
}

const tooManyWords = (path: CommandPath, words: readonly string[]): string | null => {
  const { arguments: expected = [], name } = path.at(-1)!
  if (words.length <= expected.length || expected.some(isVariadic)) return null
  return `too many arguments${path.length === 1 ? '' : ` for "${name}"`}: expected ${expected.length}, got ${words.length}`
}

/** Answers `help [command]` of a command with subcommands. */
const helpBelow = (path: CommandPath, [about, ...rest]: readonly string[], usage: UsageError): ParsedLine => {
  if (about === undefined) return helpOf(path)
  const below = path.at(-1)!.commands?.find(({ name }) => name === about)
  if (below === undefined) throw unknownCommand(path, about, usage)
  return helpBelow([...path, below], below.commands === undefined ? [] : rest, usage)
}

const unknownCommand = (path: CommandPath, word: string, usage: UsageError): AppError => {
  const { commands = [], programs = [], elsewhere = false } = path.at(-1)!
  if (elsewhere && programs.includes(word))
    return usage(`"${word}" is not in this single file. It comes with the npm or Debian package`, pathText(path))
  if (programs.includes(word))
    return usage(`global options are not supported before "${word}"; set X0X_DATA_DIR or X0X_NAME instead`, `${pathText(path)} ${word}`)
  const meant = commands.filter(({ otherWords = [] }) => otherWords.includes(word)).map(({ name }) => name)
  const names = [...commands.map(({ name }) => name), ...(elsewhere ? [] : programs)]
  return usage(`unknown command "${word}"${suggestion(meant) || didYouMean(word, names)}`, pathText(path))
}

/** Parses the words after a program's name. Throws the error of `usage` for an invalid line. */
export const parseCommandLine = (program: CommandSpec, argv: readonly string[], usage: UsageError): ParsedLine =>
  parseWith(program, argv, usage, { suggest: didYouMean, asked, helpBelow, unknownCommand })

const hasOption = ({ options = [] }: CommandSpec, name: string): boolean => options.some((option) => optionParts(option).name === name)

/** True if the command has an option with the name of one of its program. After the command, the name means that of the command. */
const hidesOption = (path: CommandPath, name: string): boolean =>
  path.length > 1 && hasOption(path.at(-1)!, name) && hasOption(path[0], name)

/** No option has a space in its name. */
const ownKey = (name: string): string => `own ${name}`

const helpOf = (path: CommandPath): ParsedLine => ({ kind: 'help', path, asked: true })

/** Like `parseCommandLine`, for a caller that discards the message. */
export const parseQuietly = (program: CommandSpec, argv: readonly string[], usage: UsageError): ParsedLine =>
  parseWith(program, argv, usage, {
    suggest: () => '',
    asked: helpOf,
    helpBelow: helpOf,
    unknownCommand: () => usage('', ''),
  })

/** Answers `--help`. Throws for words that are also wrong without it. */
const asked = (path: CommandPath, words: readonly string[], usage: UsageError): ParsedLine => {
  const command = path.at(-1)!
  if (command.commands !== undefined && words[0] === 'help') return helpBelow(path, words.slice(1), usage)
  const surplus = command.group === true ? null : tooManyWords(path, words)
  if (surplus !== null) throw usage(surplus, pathText(path))
  if (command.group === true) helpBelow(path, words, usage)
  return helpOf(path)
}

/** The parts that only serve messages. `parseQuietly` leaves them out of its bundle. */
interface ParseMessage {
  readonly suggest: Suggest
  readonly asked: typeof asked
  readonly helpBelow: typeof helpBelow
  readonly unknownCommand: typeof unknownCommand
}

const parseWith = (program: CommandSpec, argv: readonly string[], usage: UsageError, telling: ParseMessage): ParsedLine => {
  const values = new Map<string, readonly string[]>()
  let path: CommandPath = [program]
  for (let args = argv; ;) {
    const level = readLevel(path, argv, argv.length - args.length, telling.suggest)
    const { below, words, behindDashes, asks } = level
    for (const [name, given] of level.values) {
      const key = hidesOption(path, name) ? ownKey(name) : name
      values.set(key, [...(values.get(key) ?? []), ...given])
    }
    if (below !== null) {
      path = [...path, below.command]
      const stray = [...values.keys()].find((name) => !optionsOf(path).some((option) => optionParts(option).name === name))
      if (stray !== undefined) throw usage(`unknown option --${stray}`, pathText(path))
      args = below.rest
      continue
    }
    const command = path.at(-1)!
    // Options after a program's name, such as `x0x mcp`, are that program's.
    if (level.problem !== null && !command.programs?.includes(words[0]!)) throw usage(level.problem, pathText(path))
    if (asks === 'help') return telling.asked(path, words, usage)
    if (asks === 'version') return { kind: 'version' }
    // With a command after `--`, `help` is the name of an agent.
    if (words[0] === 'help' && command.commands !== undefined && behindDashes === null)
      return telling.helpBelow(path, words.slice(1), usage)
    if (command.group === true) {
      if (words[0] === undefined) return { kind: 'help', path, asked: false }
      throw telling.unknownCommand(path, words[0], usage)
    }
    const own = command.carries === true ? words : [...words, ...(behindDashes ?? [])]
    const problem = optionProblem(optionsOf(path), values) ?? wordsProblem(path, own)
    if (problem !== null) throw usage(problem, pathText(path))
    return { kind: 'line', line: new CommandLine(path, values, own, behindDashes) }
  }
}
