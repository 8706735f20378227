import { basename } from 'node:path'

import type { TomlPath, TomlReader } from '../../base/toml-reader.ts'
import { isCalled, MULTI_CALL } from '../executable.ts'
import { matchesToken, type PatternToken } from '../../protocol/argv-template.ts'
import { readArgv, readToken } from '../read-token.ts'
import type { AlwaysAskRule, CommandPattern } from './ask-rules.ts'
import type { Meaning, Meanings } from './meanings.ts'
import type { Word } from './wrappers.ts'

/** At the end of a pattern: whatever follows. */
export const ANY_TOKEN = '<ANY...>'
/** In the place of a program: a shell or interpreter, or whatever else runs what nobody can know. */
export const SHELL_TOKEN = '<shell>'
/** Rules of one file. */
export const MAX_ALWAYS_ASK = 1_000
/** Longest reason, which stands in front of a human. */
export const MAX_REASON_BYTES = 512

/** Reads the argv of a pattern: tokens as a command has them, `<ANY...>` last. */
export const readPattern = (toml: TomlReader, path: TomlPath, value: unknown, allowShell: boolean): CommandPattern => {
  const argv = readArgv(toml, path, value)
  const anyArguments = argv.at(-1) === ANY_TOKEN
  const fixed = anyArguments ? argv.slice(0, -1) : argv
  if (anyArguments && fixed.length === 0) toml.problem(path, `${ANY_TOKEN} stands behind the program`)
  const tokens = fixed.map((text, index): PatternToken => {
    if (allowShell && index === 0 && text === SHELL_TOKEN) return { kind: 'literal', text }
    if (text !== ANY_TOKEN) return readToken(toml, [...path, index], text, index === 0)
    toml.problem([...path, index], `${ANY_TOKEN} must be the last token`)
    return { kind: 'literal', text }
  })
  return { argv, tokens, anyArguments }
}

/** The rules at `path`, `[[….always_ask]]` of either configuration. */
export const readAlwaysAsk = (toml: TomlReader, path: TomlPath, value: unknown): AlwaysAskRule[] => {
  const tables = toml.tables(path, value)
  if (tables.length > MAX_ALWAYS_ASK) toml.problem(path, `has ${tables.length} rules, where ${MAX_ALWAYS_ASK} are allowed`)
  return tables.slice(0, MAX_ALWAYS_ASK).flatMap((item, index) => {
    const at = [...path, index]
    const table = toml.table(at, item, ['argv', 'reason'])
    if (table === null) return []
    const pattern = readPattern(toml, [...at, 'argv'], table['argv'], true)
    if (table['reason'] === undefined) toml.problem([...at, 'reason'], 'is required: a human reads it before deciding')
    const reason = toml.text([...at, 'reason'], table['reason']) ?? ''
    if (Buffer.byteLength(reason) > MAX_REASON_BYTES) toml.problem([...at, 'reason'], `has at most ${MAX_REASON_BYTES} bytes`)
    return [{ ...pattern, reason, line: toml.document.lineOf(at) }]
  })
}

/** The reason of the first rule that a command is of, in any of its meanings; null: no rule. Where it may be of one, it is. */
export const alwaysAskReason = (rules: readonly AlwaysAskRule[], meanings: Meanings, path: string): string | null => {
  const found = new Map<string, boolean>()
  const rule = rules.find((one) => meanings.all.some((meaning) => isOf(one, meaning, path, found)))
  if (rule !== undefined) return rule.reason
  const [first] = rules
  if (first === undefined || meanings.opaque === null) return null
  const own = rules.find(({ argv }) => argv[0] === SHELL_TOKEN)
  return own?.reason ?? `${meanings.opaque}, so that it may be what the list has: ${first.reason}`
}

/** May these words, behind their program, be of the rule? */
const isOf = ({ tokens, anyArguments }: AlwaysAskRule, meaning: Meaning, path: string, found: Map<string, boolean>): boolean => {
  const [program, ...wanted] = tokens
  const [, ...words] = meaning.argv
  if (program?.kind !== 'literal' || program.text === SHELL_TOKEN) return false
  const more = { anyArguments, open: meaning.open }
  if (isProgram(program.text, meaning, path, found) && fitsWords(wanted, words, more)) return true
  // A program of many commands has each by a name of its own, too: `git-push` is `git push`.
  const [name, dashed] = [nameOf(meaning.argv[0] ?? ''), `${nameOf(program.text)}-`]
  return wanted.length > 0 && name.startsWith(dashed) && fitsWords(wanted, [name.slice(dashed.length), ...words], more)
}

/** On some file systems upper and lower case are the same. */
const nameOf = (path: string): string => basename(path).toLowerCase()

/** By its name, wherever it stands; or by its very file, whatever it is called. One file that is many programs counts by name alone. */
const isProgram = (name: string, { argv, file }: Meaning, path: string, found: Map<string, boolean>): boolean => {
  const wanted = nameOf(name)
  if (nameOf(argv[0] ?? '') === wanted) return true
  if (file === null || MULTI_CALL.includes(basename(file.real))) return false
  if (nameOf(file.real) === wanted) return true
  // Looked up once for a name and a file, however many rules and meanings have them.
  const key = `${file.dev}:${file.ino} ${name}`
  const known = found.get(key) ?? isCalled(file, name, path)
  found.set(key, known)
  return known
}

/**
 * Options, each perhaps with a value behind it, hide no word of a rule: `git -C . push` is `git push`. A word that is not known
 * may be any. Costs the product of both lengths.
 */
const fitsWords = (wanted: readonly PatternToken[], words: readonly Word[], more: { anyArguments: boolean; open: boolean }): boolean => {
  const isOption = (word: Word | undefined): boolean => word === null || (word?.startsWith('-') ?? false)
  const fits = (token: PatternToken, word: Word): boolean => word === null || matchesToken(token, word)
  /** Which of the words may come next, once a number of tokens has fitted. */
  let next = new Set([0])
  const skipOptions = (from: ReadonlySet<number>): Set<number> => {
    const all = new Set(from)
    // A set goes on over what is added to it: to what is reached and no further.
    for (const at of all)
      if (at < words.length && isOption(words[at])) {
        all.add(at + 1)
        // Its value; more options need none of their own to be passed over.
        if (at + 1 < words.length) all.add(at + 2)
      }
    return all
  }
  for (const token of wanted) {
    const begins = skipOptions(next)
    if (more.open && [...begins].some((at) => at >= words.length)) return true
    next = new Set([...begins].filter((at) => at < words.length && fits(token, words[at]!)).map((at) => at + 1))
    if (next.size === 0) return false
  }
  return more.anyArguments || more.open || [...skipOptions(next)].some((at) => at >= words.length)
}
