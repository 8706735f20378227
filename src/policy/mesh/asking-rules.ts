import type { TomlPath, TomlReader, TomlTable } from '../../base/toml.ts'
import { type AgentId, isHexId } from '../../protocol/ids.ts'
import { MAX_MESH_APPROVERS } from '../../protocol/limits/approvals.ts'
import { alwaysAskOf, readPattern } from '../approval/always-ask.ts'
import type { CommandPattern } from '../approval/ask-rules.ts'
import { type Meaning, meaningOf } from '../approval/meanings.ts'
import { SCRUBBED_PATH } from '../environment.ts'
import { quoteArgv, warnOfMetacharacter } from '../tokens.ts'
import { type Acl, type AllowEntry, type AllowedCommand, type AskPattern, type EntryAsking, entriesFor } from './acl.ts'
import { refuseFileCommand } from './file-grants.ts'
import { coversAll } from './match.ts'

export const ASKING_KEYS = ['ask', 'ask_patterns', 'approvers', 'approvals_needed'] as const

/** Keys of one of `ask_patterns`. */
export const ASK_PATTERN_KEYS = ['argv', 'stdin'] as const

const ASK_VALUES = ['on-miss', 'always'] as const

export const readAsking = (toml: TomlReader, path: TomlPath, table: TomlTable): EntryAsking => {
  const ask = readAsk(toml, [...path, 'ask'], table['ask'])
  const at = [...path, 'ask_patterns']
  const patterns = toml.tables(at, table['ask_patterns']).flatMap((item, index) => readAskPattern(toml, [...at, index], item))
  if (ask === 'off' && table['ask'] === undefined && patterns.length > 0)
    toml.problem(at, 'has no effect without ask = "on-miss" or "always" in the entry')
  if (ask === 'on-miss' && patterns.length === 0)
    toml.problem([...path, 'ask'], 'is "on-miss", but the entry has no ask_patterns, so it has no effect')
  const approvers = readApprovers(toml, path, table)
  return { ask, patterns, approvers, approvals_needed: readNeeded(toml, path, table, approvers.length) }
}

const readAsk = (toml: TomlReader, path: TomlPath, value: unknown): EntryAsking['ask'] => {
  const ask = ASK_VALUES.find((known) => known === value)
  if (value !== undefined && ask === undefined) toml.problem(path, 'must be "always" or "on-miss"; without it, no approval is needed')
  return ask ?? 'off'
}

const readAskPattern = (toml: TomlReader, path: TomlPath, value: unknown): AskPattern | [] => {
  const table = toml.table(path, value, ASK_PATTERN_KEYS)
  if (table === null) return []
  const at = [...path, 'argv']
  const pattern = readPattern(toml, at, table['argv'], false)
  refuseFileCommand(toml, at, pattern.argv)
  for (const [index, token] of pattern.tokens.entries()) warnOfMetacharacter(toml, [...at, index], token)
  const stdin = toml.boolean([...path, 'stdin'], table['stdin']) ?? true
  return { ...pattern, stdin, terminal: false, record: false, watch: false, line: toml.document.lineOf(at) }
}

const readApprovers = (toml: TomlReader, path: TomlPath, table: TomlTable): AgentId[] => {
  const { approvers, agent_id } = table
  if (approvers === undefined) return []
  const at = [...path, 'approvers']
  if (!Array.isArray(approvers) || approvers.length === 0) {
    toml.problem(at, 'must be a list of at least one { agent_id = "…" }')
    return []
  }
  if (approvers.length > MAX_MESH_APPROVERS) toml.problem(at, `has ${approvers.length} agents, where ${MAX_MESH_APPROVERS} are allowed`)
  const found: AgentId[] = []
  for (const [index, item] of approvers.slice(0, MAX_MESH_APPROVERS).entries()) {
    const row = toml.table([...at, index], item, ['agent_id'])
    if (row === null) continue
    const id = row['agent_id']
    const place = [...at, index, 'agent_id']
    if (typeof id !== 'string' || !isHexId(id)) toml.problem(place, 'must be 64 lower-case hex digits')
    else if (found.includes(id)) toml.problem(place, 'is listed twice')
    else if (id === agent_id) toml.problem(place, 'is the agent of this entry, which cannot approve its own requests')
    else found.push(id)
  }
  return found
}

/** All approvers, unless the entry requires fewer. */
const readNeeded = (toml: TomlReader, path: TomlPath, table: TomlTable, count: number): number => {
  const at = [...path, 'approvals_needed']
  const needed = toml.wholeNumber(at, table['approvals_needed'], 1, MAX_MESH_APPROVERS)
  if (needed === null) return count
  if (table['approvers'] === undefined) toml.problem(at, 'is given, and the entry has no approvers')
  else if (needed > count) toml.problem(at, `is ${needed}, above the number of approvers (${count})`)
  return needed
}

/** How often a file requires approvals. */
export interface AskingCounts {
  /** Entries that require a local approver for some or all runs. */
  readonly asking_entry_count: number
  readonly ask_pattern_count: number
  readonly always_ask_count: number
  /** Number of different agents in all entries. */
  readonly approver_count: number
  /** Highest number that an entry requires. */
  readonly approvals_needed: number
}

export const countAsking = (acl: Acl | null): AskingCounts => {
  const entries = acl?.allow ?? []
  const all = entries.map(({ asking }) => asking)
  return {
    asking_entry_count: entries.filter(({ asking, files }) => asking.ask !== 'off' || files.some(({ ask }) => ask)).length,
    ask_pattern_count: all.reduce((sum, { patterns }) => sum + patterns.length, 0),
    always_ask_count: acl?.always_ask.length ?? 0,
    approver_count: new Set(all.flatMap(({ approvers }) => approvers)).size,
    approvals_needed: Math.max(0, ...all.map(({ approvals_needed }) => approvals_needed)),
  }
}

type Pattern = Pick<CommandPattern, 'tokens'> & { readonly anyArguments?: boolean }

/** True if `wide` matches all that `narrow` matches. */
const covers = (wide: Pattern, narrow: Pattern): boolean =>
  wide.anyArguments === true
    ? coversAll(wide.tokens, narrow.tokens.slice(0, wide.tokens.length))
    : narrow.anyArguments !== true && coversAll(wide.tokens, narrow.tokens)

/** Reports patterns and rules without effect, each with file, line and key. */
export const lintAsking = (acl: Acl): string[] => [
  ...acl.allow.flatMap((entry, at) =>
    entry.asking.patterns.flatMap((pattern, index) => {
      const place = `${acl.source ?? ''}:${pattern.line}: exec.allow[${at}].ask_patterns[${index}].argv: `
      return lintUnreached(acl, entry, pattern).map((text) => place + text)
    }),
  ),
  ...lintAlwaysAsk(acl),
]

/** All commands of the pair precede its patterns; of several patterns, the first match applies. */
const lintUnreached = (acl: Acl, entry: AllowEntry, pattern: AskPattern): string[] => {
  const own = entriesFor(acl, entry)
  const command = own.flatMap(({ commands }) => commands).find((one) => covers(one, pattern))
  if (command !== undefined) return [`has no effect: line ${command.line} allows it without approval; remove one of the two`]
  const patterns = own.flatMap(({ asking }) => asking.patterns)
  const first = patterns.slice(0, patterns.indexOf(pattern)).find((one) => covers(one, pattern))
  if (first === undefined) return []
  const same = covers(pattern, first) ? 'the same' : 'this and more'
  return [
    `has no effect: line ${first.line} has ${same} for the same agent and machine, with the approvers and limits of its own entry; ` +
      'remove one of the two, or put the stricter one first',
  ]
}

/** All that a matching request could run, with any argument in place of a template. */
const widestOf = (acl: Acl, { tokens, anyArguments }: Pattern): Meaning =>
  meaningOf(
    tokens.map((token) => (token.kind === 'literal' ? token.text : null)),
    [],
    { cwd: acl.default_cwd, path: SCRUBBED_PATH },
    anyArguments,
  )

/** Reports always-ask rules that match no allowed command, because they are probably misspelled. */
const lintAlwaysAsk = (acl: Acl): string[] => {
  const listed: (AllowedCommand & Pattern)[] = acl.allow.flatMap(({ commands, asking }) => [...commands, ...asking.patterns])
  const meanings = listed.map((command) => widestOf(acl, command))
  return acl.always_ask.flatMap((rule, index) => {
    const place = `${acl.source ?? ''}:${rule.line}: exec.always_ask[${index}].argv: ${quoteArgv(rule.argv)} `
    const first = acl.always_ask.slice(0, index).find((one) => covers(one, rule))
    if (first !== undefined) return [`${place}has no effect: line ${first.line} matches first`]
    const may = rule.argv.length === 0 || meanings.some((one) => alwaysAskOf([rule], one, SCRUBBED_PATH) !== null)
    return may ? [] : [`${place}has no effect: no command and no ask_patterns of this file can match it; check the spelling`]
  })
}
