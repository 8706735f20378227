import { type PatternToken, TEMPLATE_TEXT, matchesToken } from '../../protocol/argv-template.ts'
import { quote } from '../tokens.ts'
import type { AllowEntry, AllowedCommand } from './acl.ts'

/**
 * Compares argv with the tokens: equal length, equal bytes except for templates. Returns the index of the first difference, or null if all
 * match.
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

/** True if `wide` matches all that `narrow` matches. An empty pattern is an unreadable command and covers nothing. */
export const coversAll = (wide: readonly PatternToken[], narrow: readonly PatternToken[]): boolean =>
  wide.length > 0 && wide.length === narrow.length && wide.every((token, index) => coversToken(token, narrow[index]!))

const coversToken = (wide: PatternToken, narrow: PatternToken): boolean => {
  if (narrow.kind === 'literal') return matchesToken(wide, narrow.text)
  if (narrow.kind === 'url_path') return wide.kind === 'url_path' && wide.prefix === narrow.prefix
  return wide.kind === 'int'
}

/** True if some argv matches both. */
export const overlap = (one: readonly PatternToken[], other: readonly PatternToken[]): boolean =>
  one.length === other.length && one.every((token, index) => tokensOverlap(token, other[index]!))

const tokensOverlap = (one: PatternToken, other: PatternToken): boolean => {
  if (one.kind === 'literal') return matchesToken(other, one.text)
  if (other.kind === 'literal') return matchesToken(one, other.text)
  if (one.kind === 'int' || other.kind === 'int') return one.kind === other.kind
  // Prefixes overlap if one begins with the other. The shortest path after the longer one matches both.
  return matchesToken(one, `${other.prefix}/`) || matchesToken(other, `${one.prefix}/`)
}

export interface MatchedCommand {
  readonly entry: AllowEntry
  readonly command: AllowedCommand
}

/** A command that did not match, and the first token that differs. */
export interface NearMiss extends MatchedCommand {
  readonly token: number
}

/** Finds the first matching command in the order of the file, else the one with the longest matching beginning. */
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

/** Explains to the operator why a token of a command did not match. */
export const describeMismatch = (miss: NearMiss, argv: readonly string[]): string => {
  const expected = miss.command.argv[miss.token]
  const got = argv[miss.token]
  if (expected === undefined) return `token ${miss.token} (${quote(got)}) is one too many: the command has ${miss.command.argv.length}`
  if (got === undefined) return `token ${miss.token} is missing: the rule has ${quote(expected)}`
  const kind = miss.command.tokens[miss.token]?.kind ?? 'literal'
  const grammar = kind === 'literal' ? '' : ` (${TEMPLATE_TEXT[kind]})`
  return `token ${miss.token} is ${quote(got)}, the command has ${quote(expected)}${grammar}`
}
