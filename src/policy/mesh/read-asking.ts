import type { TomlPath, TomlReader, TomlTable } from '../../base/toml-reader.ts'
import { type AgentId, isHexId } from '../../protocol/ids.ts'
import { MAX_MESH_APPROVERS } from '../../protocol/waiting-limits.ts'
import { readPattern } from '../approval/always-ask.ts'
import { warnOfMetacharacter } from '../read-token.ts'
import type { AskPattern, EntryAsking } from './acl.ts'

export const ASKING_KEYS = ['ask', 'ask_patterns', 'approvers', 'approvals_needed'] as const

const ASK_VALUES = ['on-miss', 'always'] as const

/** The keys of the entry at `path`. */
export const readAsking = (toml: TomlReader, path: TomlPath, table: TomlTable): EntryAsking => {
  const ask = readAsk(toml, [...path, 'ask'], table['ask'])
  const at = [...path, 'ask_patterns']
  const patterns = toml.tables(at, table['ask_patterns']).flatMap((item, index) => readAskPattern(toml, [...at, index], item))
  if (ask === 'off' && table['ask'] === undefined && patterns.length > 0)
    toml.problem(at, 'says what may be asked for, and the entry has no ask = "on-miss" or "always"')
  if (ask === 'on-miss' && patterns.length === 0)
    toml.problem([...path, 'ask'], 'is "on-miss", and the entry has no ask_patterns: nothing could be asked for')
  const approvers = readApprovers(toml, path, table)
  return { ask, patterns, approvers, approvals_needed: readNeeded(toml, path, table, approvers.length) }
}

const readAsk = (toml: TomlReader, path: TomlPath, value: unknown): EntryAsking['ask'] => {
  const ask = ASK_VALUES.find((known) => known === value)
  if (value !== undefined && ask === undefined) toml.problem(path, 'must be "always" or "on-miss"; left out, nobody is asked')
  return ask ?? 'off'
}

const readAskPattern = (toml: TomlReader, path: TomlPath, value: unknown): AskPattern | [] => {
  const table = toml.table(path, value, ['argv', 'stdin'])
  if (table === null) return []
  const at = [...path, 'argv']
  const pattern = readPattern(toml, at, table['argv'], false)
  for (const [index, token] of pattern.tokens.entries()) warnOfMetacharacter(toml, [...at, index], token)
  return { ...pattern, stdin: toml.boolean([...path, 'stdin'], table['stdin']) ?? true, line: toml.document.lineOf(at) }
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
    else if (found.includes(id)) toml.problem(place, 'stands here twice: each agent has one word')
    else if (id === agent_id) toml.problem(place, 'is the agent of this entry, which cannot approve what it asks for itself')
    else found.push(id)
  }
  return found
}

/** All of them, unless the entry says fewer. */
const readNeeded = (toml: TomlReader, path: TomlPath, table: TomlTable, count: number): number => {
  const at = [...path, 'approvals_needed']
  const needed = toml.wholeNumber(at, table['approvals_needed'], 1, MAX_MESH_APPROVERS)
  if (needed === null) return count
  if (table['approvers'] === undefined) toml.problem(at, 'is given, and the entry has no approvers')
  else if (needed > count) toml.problem(at, `is ${needed}, more than the approvers there are (${count})`)
  return needed
}
