import type { AllowedCommand, AllowEntry, PatternToken } from './acl.ts'
import { quote } from '../quote.ts'

/** `<INT>`: 1 to 999,999 without sign or leading zero. */
const INT = /^[1-9][0-9]{0,5}$/
/** `<URL_PATH>`; `..` is refused beside it. */
const URL_PATH = /^\/[A-Za-z0-9/_.-]{0,256}$/
const URL_PATH_TOKEN = '<URL_PATH>'
/** Anything in angle brackets claims to be a template. */
const TEMPLATE = /<[^<>]*>/

/** No shell ever sees a token; these are refused nevertheless, as a second lock. */
const METACHARACTER = /[;|&><`$\n\0]/

/** Reads one token of the file; a string says why it is none. */
export const parseToken = (text: string): PatternToken | string => {
  if (text === '<INT>') return { kind: 'int' }
  const prefix = text.endsWith(URL_PATH_TOKEN) ? text.slice(0, -URL_PATH_TOKEN.length) : undefined
  const template = TEMPLATE.exec(prefix ?? text)?.[0]
  if (template === undefined) return prefix === undefined ? { kind: 'literal', text } : { kind: 'url_path', prefix }
  if (template === '<INT>') return '<INT> must be the whole token'
  if (template === URL_PATH_TOKEN) return '<URL_PATH> must be the whole token or its end'
  return `unknown template ${template}; there are <INT> and <URL_PATH>`
}

const matchesToken = (token: PatternToken, text: string): boolean => {
  switch (token.kind) {
    case 'literal':
      return text === token.text
    case 'int':
      return INT.test(text)
    case 'url_path':
      return text.startsWith(token.prefix) && isUrlPath(text.slice(token.prefix.length))
  }
}

const isUrlPath = (text: string): boolean => URL_PATH.test(text) && !text.includes('..')

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

/** True when whatever fits `narrow` fits `wide` too. */
export const coversAll = (wide: readonly PatternToken[], narrow: readonly PatternToken[]): boolean =>
  wide.length === narrow.length && wide.every((token, index) => coversToken(token, narrow[index]!))

const coversToken = (wide: PatternToken, narrow: PatternToken): boolean => {
  if (narrow.kind === 'literal') return matchesToken(wide, narrow.text)
  if (narrow.kind === 'url_path') return wide.kind === 'url_path' && wide.prefix === narrow.prefix
  return wide.kind === 'int'
}

/** The first token with a metacharacter, and which one. */
export const findMetacharacter = (argv: readonly string[]): { token: number; character: string } | null => {
  for (const [token, text] of argv.entries()) {
    const character = METACHARACTER.exec(text)?.[0]
    if (character !== undefined) return { token, character }
  }
  return null
}

/** Where a command stands in the file. */
export interface CommandPlace {
  readonly entry: AllowEntry
  readonly command: AllowedCommand
}

/** A command that was not asked for, and the first token that says so. */
export interface NearMiss extends CommandPlace {
  readonly token: number
}

/** The first command that matches, in the order of the file; else the one that agrees for longest. */
export const searchCommands = (
  entries: readonly AllowEntry[],
  argv: readonly string[],
): { match: CommandPlace | null; nearest: NearMiss | null } => {
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
  return `token ${miss.token} is ${quote(got)}, the command has ${quote(expected)}${GRAMMAR[miss.command.tokens[miss.token]?.kind ?? 'literal']}`
}

/** What a template takes, for somebody whose token it did not take. */
const GRAMMAR: Readonly<Record<PatternToken['kind'], string>> = {
  literal: '',
  int: ' (1 to 999999, no sign, no leading zero)',
  url_path: ' (/ and up to 256 of A-Z a-z 0-9 / _ . -, without ..)',
}
