import { type PatternToken, TEMPLATE_TEXT, matchesToken } from '../../protocol/argv-template.ts'
import { quote } from '../tokens.ts'
import type { AllowEntry, AllowedCommand } from './acl.ts'

/**
 * Token by token, of equal length, byte for byte but for the templates. The index of the first token
 * that differs, also where one side has ended; null: the argv matches.
 */
export const firstMismatch = (tokens: readonly PatternToken[], argv: readonly string[]): number | null => {
  const length = Math.max(tokens.length, argv.length)
  for (let at = 0; at < length; at++) {
    const token = tokens[at]
    const text = argv[at]
    if (token === undefined || text === undefined || !matchesToken(token, text)) return at
  }
  return null
}

/** True when whatever fits `narrow` fits `wide` too. No words are a command that could not be read, which is like no other. */
export const coversAll = (wide: readonly PatternToken[], narrow: readonly PatternToken[]): boolean =>
  wide.length > 0 && wide.length === narrow.length && wide.every((token, index) => coversToken(token, narrow[index]!))

const coversToken = (wide: PatternToken, narrow: PatternToken): boolean => {
  if (narrow.kind === 'literal') return matchesToken(wide, narrow.text)
  if (narrow.kind === 'url_path') return wide.kind === 'url_path' && wide.prefix === narrow.prefix
  return wide.kind === 'int'
}

/** True when some argv fits both. */
export const overlap = (one: readonly PatternToken[], other: readonly PatternToken[]): boolean =>
  one.length === other.length && one.every((token, index) => tokensOverlap(token, other[index]!))

const tokensOverlap = (one: PatternToken, other: PatternToken): boolean => {
  if (one.kind === 'literal') return matchesToken(other, one.text)
  if (other.kind === 'literal') return matchesToken(one, other.text)
  if (one.kind === 'int' || other.kind === 'int') return one.kind === other.kind
  // Of two prefixes the one must begin with the other; the shortest path behind the longer is the first to fit both.
  return matchesToken(one, `${other.prefix}/`) || matchesToken(other, `${one.prefix}/`)
}

/** Where a command stands in the file. */
export interface MatchedCommand {
  readonly entry: AllowEntry
  readonly command: AllowedCommand
}

/** A command that was not asked for, and the first token that says so. */
export interface NearMiss extends MatchedCommand {
  readonly token: number
}

/** The first command that matches, in the order of the file; else the one that agrees for longest. */
export const searchCommands = (
  entries: readonly AllowEntry[],
  argv: readonly string[],
): { match: MatchedCommand | null; nearest: NearMiss | null } => {
  let nearest: NearMiss | null = null
  for (const entry of entries)
    for (const command of entry.commands) {
      const token = firstMismatch(command.tokens, argv)
      if (token === null) return { match: { entry, command }, nearest: null }
      if (nearest === null || token > nearest.token) nearest = { entry, command, token }
    }
  return { match: null, nearest }
}

/** Why one token of a command does not fit, for the operator. */
export const describeMismatch = (miss: NearMiss, argv: readonly string[]): string => {
  const expected = miss.command.argv[miss.token]
  const got = argv[miss.token]
  if (expected === undefined) return `token ${miss.token} (${quote(got)}) is one too many: the command has ${miss.command.argv.length}`
  if (got === undefined) return `token ${miss.token} is missing: the command has ${quote(expected)} there`
  const kind = miss.command.tokens[miss.token]?.kind ?? 'literal'
  const grammar = kind === 'literal' ? '' : ` (${TEMPLATE_TEXT[kind]})`
  return `token ${miss.token} is ${quote(got)}, the command has ${quote(expected)}${grammar}`
}
