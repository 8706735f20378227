import { AppError } from '../base/errors.ts'
import { writableByOthers } from '../base/file-rights.ts'
import { absolutePath } from '../base/home.ts'
import { readToml } from '../base/toml-file.ts'
import { type TomlPath, TomlReader, type TomlTable, deepFreeze, nameOf } from '../base/toml-reader.ts'
import { readAlwaysAsk } from '../policy/approval/always-ask.ts'
import type { ModeTable, ToolsSettings } from '../policy/modes/tools-settings.ts'
import { readSandboxSettings } from '../policy/sandbox/sandbox-settings.ts'
import { MAX_NAME } from '../protocol/limits.ts'
import { ASKS, ASK_FALLBACKS, HOSTS, type Host, SECURITIES } from '../protocol/question.ts'

/** The sections of a file that `readTools` reads. */
export const TOOLS_SECTIONS = ['tools', 'agents'] as const

const MODE_KEYS = ['host', 'security', 'ask', 'ask_fallback', 'node', 'allowed_hosts']
const GLOBAL_KEYS = [...MODE_KEYS, 'always_ask', 'sandbox']
/** Agents of one file. */
const MAX_AGENTS = 1_000

const EXEC: TomlPath = ['tools', 'exec']

/** What a file says of where commands run; null: nothing, and they run as `[security]` alone says. What is wrong is the reader's. */
export const readTools = (toml: TomlReader): ToolsSettings | null => {
  const { tools, agents } = toml.document.value
  if (tools === undefined && agents === undefined) return null
  const exec = tools === undefined ? {} : execTable(toml, ['tools'], tools, GLOBAL_KEYS)
  return {
    defaults: readModes(toml, EXEC, exec),
    agents: agents === undefined ? {} : readAgents(toml, agents),
    sandbox: readSandboxSettings(toml, [...EXEC, 'sandbox'], exec['sandbox']),
    always_ask: readAlwaysAsk(toml, [...EXEC, 'always_ask'], exec['always_ask']),
  }
}

/** A file with nothing but `[tools.exec]` and `[[agents.list]]`. Throws `bad_config`, whose message has all that is wrong with it. */
export const loadTools = async (
  file: string,
): Promise<{ readonly tools: ToolsSettings; readonly sha256: string; readonly warnings: readonly string[] }> => {
  const path = absolutePath('the configuration', file)
  const document = await readToml(path, 'bad_config', { bigints: true })
  const toml = new TomlReader(document, 'bad_config')
  toml.knownKeys([], document.value, TOOLS_SECTIONS)
  const tools = readTools(toml)
  if (tools === null) toml.problem([], '[tools.exec] is required: it says where commands run')
  const problems = [...writableByOthers(path), ...toml.problems]
  if (tools === null || problems.length > 0) throw new AppError('bad_config', problems.join('\n'), { data: { file: path, problems } })
  return { tools: deepFreeze(tools), sha256: document.sha256, warnings: toml.warnings }
}

/** `exec` of a table of tools, which has nothing else. */
const execTable = (toml: TomlReader, path: TomlPath, value: unknown, keys: readonly string[]): TomlTable => {
  const table = toml.table(path, value, ['exec'])
  if (table === null) return {}
  const at = [...path, 'exec']
  if (table['exec'] === undefined) toml.problem(at, 'is required: there is no other tool')
  return table['exec'] === undefined ? {} : (toml.table(at, table['exec'], keys) ?? {})
}

const oneOf = <T extends string>(toml: TomlReader, path: TomlPath, value: unknown, choices: readonly T[]): T | null => {
  if (value === undefined) return null
  const choice = choices.find((one) => one === value)
  if (choice === undefined) toml.problem(path, `must be one of ${choices.join(', ')}, not ${nameOf(value)}`)
  return choice ?? null
}

const readModes = (toml: TomlReader, path: TomlPath, table: TomlTable): ModeTable => {
  const node = toml.text([...path, 'node'], table['node'])
  if (node !== null && Buffer.byteLength(node) > MAX_NAME) toml.problem([...path, 'node'], `has at most ${MAX_NAME} bytes`)
  return {
    host: oneOf(toml, [...path, 'host'], table['host'], HOSTS),
    security: oneOf(toml, [...path, 'security'], table['security'], SECURITIES),
    ask: oneOf(toml, [...path, 'ask'], table['ask'], ASKS),
    ask_fallback: oneOf(toml, [...path, 'ask_fallback'], table['ask_fallback'], ASK_FALLBACKS),
    node,
    allowed_hosts: readHosts(toml, [...path, 'allowed_hosts'], table['allowed_hosts']),
  }
}

const readHosts = (toml: TomlReader, path: TomlPath, value: unknown): readonly Host[] | null =>
  toml.strings(path, value)?.flatMap((text, index) => oneOf(toml, [...path, index], text, HOSTS) ?? []) ?? null

const readAgents = (toml: TomlReader, value: unknown): ToolsSettings['agents'] => {
  const list = toml.table(['agents'], value, ['list'])?.['list']
  const tables = toml.tables(['agents', 'list'], list)
  if (tables.length > MAX_AGENTS) toml.problem(['agents', 'list'], `has ${tables.length} agents, where ${MAX_AGENTS} are allowed`)
  const agents = new Map<string, ModeTable>()
  for (const [index, item] of tables.entries()) {
    const at = ['agents', 'list', index]
    const table = toml.table(at, item, ['id', 'tools'])
    if (table === null) continue
    const id = readId(toml, [...at, 'id'], table['id'])
    if (table['tools'] === undefined) toml.problem([...at, 'tools'], 'is required: write [agents.list.tools.exec] below it')
    const tools = table['tools'] === undefined ? {} : execTable(toml, [...at, 'tools'], table['tools'], MODE_KEYS)
    const modes = readModes(toml, [...at, 'tools', 'exec'], tools)
    if (id === null) continue
    if (agents.has(id)) toml.problem([...at, 'id'], `${JSON.stringify(id)} stands here twice`)
    agents.set(id, modes)
  }
  // A name such as `__proto__` is one like any other.
  return Object.assign(Object.create(null) as object, Object.fromEntries(agents))
}

const readId = (toml: TomlReader, path: TomlPath, value: unknown): string | null => {
  if (value === undefined) toml.problem(path, 'is required: the name that the agent gives itself, as x0x mcp --whoami')
  const id = toml.text(path, value)
  if (id === '*') toml.problem(path, 'names one agent: settings for all agents are those of [tools.exec]')
  if (id === null || Buffer.byteLength(id) <= MAX_NAME) return id
  toml.problem(path, `has at most ${MAX_NAME} bytes`)
  return null
}
