import { basename } from 'node:path'
import type { TomlPath, TomlReader } from '../../base/toml.ts'
import { type PatternToken, matchesToken } from '../../protocol/argv-template.ts'
import { filesCalled } from '../executable.ts'
import { readArgv, readToken } from '../tokens.ts'
import type { AlwaysAskRule, CommandPattern } from './ask-rules.ts'
import type { Meaning, Word } from './meanings.ts'

/** Last token of a pattern: any further arguments. */
export const ANY_TOKEN = '<ANY...>'
/** First token of a pattern: any shell, interpreter or other program that runs code which its arguments do not show. */
export const SHELL_TOKEN = '<shell>'
export const ALWAYS_ASK_KEYS = ['argv', 'reason'] as const
/** Maximum number of rules in one file. */
export const MAX_ALWAYS_ASK = 1_000
/** Maximum length of a reason, which the approver reads. */
export const MAX_REASON_BYTES = 512

/** Reads the argv of a pattern. Tokens are those of a command; `<ANY...>` may be the last. */
export const readPattern = (toml: TomlReader, path: TomlPath, value: unknown, allowShell: boolean): CommandPattern => {
  const argv = readArgv(toml, path, value)
  const anyArguments = argv.at(-1) === ANY_TOKEN
  const fixed = anyArguments ? argv.slice(0, -1) : argv
  if (anyArguments && fixed.length === 0) toml.problem(path, `${ANY_TOKEN} must be after the program`)
  const tokens = fixed.map((text, index): PatternToken => {
    if (allowShell && index === 0 && text === SHELL_TOKEN) return { kind: 'literal', text }
    if (text !== ANY_TOKEN) return readToken(toml, [...path, index], text, index === 0)
    toml.problem([...path, index], `${ANY_TOKEN} must be the last token`)
    return { kind: 'literal', text }
  })
  return { argv, tokens, anyArguments }
}

/** Reads the rules at `path`: `[[….always_ask]]` of the ACL or of the REXD configuration. */
export const readAlwaysAsk = (toml: TomlReader, path: TomlPath, value: unknown): AlwaysAskRule[] => {
  const tables = toml.tables(path, value)
  if (tables.length > MAX_ALWAYS_ASK) toml.problem(path, `has ${tables.length} rules, where ${MAX_ALWAYS_ASK} are allowed`)
  return tables.slice(0, MAX_ALWAYS_ASK).flatMap((item, index) => {
    const at = [...path, index]
    const table = toml.table(at, item, ALWAYS_ASK_KEYS)
    if (table === null) return []
    const pattern = readPattern(toml, [...at, 'argv'], table['argv'], true)
    if (table['reason'] === undefined) toml.problem([...at, 'reason'], 'is required: approvers read it')
    const reason = toml.text([...at, 'reason'], table['reason']) ?? ''
    if (Buffer.byteLength(reason) > MAX_REASON_BYTES) toml.problem([...at, 'reason'], `has at most ${MAX_REASON_BYTES} bytes`)
    return [{ ...pattern, reason, line: toml.document.lineOf(at) }]
  })
}

/** The reason why a command always needs an approver. */
export interface AlwaysAsk {
  readonly reason: string
  /** True if a rule names the command itself, so that only an approver can allow each run. False if a grant may allow it. */
  readonly isEachTime: boolean
}

/**
 * Returns why the always-ask rules apply to a command, or null. A rule applies if its tokens occur among the arguments in their order, with
 * any arguments before and between them, so that no wrapper and no option hides them. The rules also apply to an opaque command, because it
 * may run a command that they list.
 */
export const alwaysAskOf = (rules: readonly AlwaysAskRule[], meaning: Meaning, path: string): AlwaysAsk | null => {
  const names = meaning.argv.map((word) => nameOf(word ?? ''))
  const rule = rules.find((one) => isOf(one, meaning, names, path))
  if (rule !== undefined) return { reason: rule.reason, isEachTime: true }
  if (rules.length === 0 || meaning.opaque === null) return null
  const own = rules.find(({ argv }) => argv[0] === SHELL_TOKEN)
  return { reason: own?.reason ?? `${meaning.opaque}, so it may run a command that always asks`, isEachTime: false }
}

/** Lower case, because some file systems ignore case. */
const nameOf = (path: string): string => basename(path).toLowerCase()

const isOf = ({ tokens }: AlwaysAskRule, meaning: Meaning, names: readonly string[], path: string): boolean => {
  const [program, ...wanted] = tokens
  if (program?.kind !== 'literal' || program.text === SHELL_TOKEN) return false
  const { argv, opaque, open } = meaning
  const name = nameOf(program.text)
  // A transparent program starts none of its arguments.
  const last = opaque === null ? 1 : argv.length
  const isKnown = fileTest(program.text, meaning, path)
  // Of several matches, the first has the most arguments after it.
  const first = argv.findIndex((word, at) => at < last && (word === null || names[at] === name || isKnown(at)))
  if (first !== -1 && inOrder(wanted, argv.slice(first + 1), open)) return true
  // Subcommands can also be separate programs: `git-push` is `git push`.
  const commandAt = (at: number): string | null =>
    at < last && names[at]?.startsWith(`${name}-`) === true ? names[at].slice(name.length + 1) : null
  const [command] = wanted
  if (command === undefined) return false
  const own = names.findIndex((_name, at) => matchesToken(command, commandAt(at) ?? ''))
  return own !== -1 && commandAt(own) !== null && inOrder(wanted.slice(1), argv.slice(own + 1), open)
}

/** Returns a test: is the argument at an index the file of the rule's program, under any name? */
const fileTest = (name: string, { file, others }: Meaning, path: string): ((at: number) => boolean) => {
  const all = [...(file === null ? [] : [{ ...file, at: 0 }]), ...others]
  const files = all.length === 0 ? null : filesCalled(name, path)
  const places = all.filter(({ real, dev, ino }) => nameOf(real) === nameOf(name) || files?.has(`${dev}:${ino}`) === true)
  return (at) => places.some((place) => place.at === at)
}

/** True if the tokens occur among the arguments in their order. An unknown argument matches any token. */
const inOrder = (wanted: readonly PatternToken[], words: readonly Word[], open: boolean): boolean => {
  let at = 0
  for (const word of words) {
    const token = wanted[at]
    if (token === undefined) return true
    if (word === null || matchesToken(token, word)) at += 1
  }
  return open || at === wanted.length
}
