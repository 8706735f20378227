import { nameOf, type TomlPath, type TomlReader, type TomlTable } from '../base/toml-reader.ts'
import type { ExecSettings } from '../policy/modes/settings.ts'
import { MAX_NAME } from '../protocol/limits.ts'
import { ASK_FALLBACKS, ASKS, HOSTS, SECURITIES, type Host } from '../protocol/question.ts'

export const SANDBOX_ENGINES = ['bubblewrap', 'podman', 'docker'] as const

/** What one table says of where commands run. */
export interface ModeTable extends ExecSettings {
  /** Hosts that a call may choose; null: it does not say. */
  readonly allowed_hosts: readonly Host[] | null
}

/** How a sandbox is made. */
export interface SandboxTable {
  readonly engine: (typeof SANDBOX_ENGINES)[number]
  /** Of docker and podman. */
  readonly image: string | null
  readonly network: boolean
}

/** `[tools.exec]` and `[[agents.list]]`. */
export interface ToolsConfig {
  readonly defaults: ModeTable
  /** By the name that an agent gives itself. */
  readonly agents: Readonly<Record<string, ModeTable>>
  readonly sandbox: SandboxTable
}

/** The sections of a file that `readTools` reads. */
export const TOOLS_SECTIONS = ['tools', 'agents'] as const

const MODE_KEYS = ['host', 'security', 'ask', 'ask_fallback', 'node', 'allowed_hosts']
const GLOBAL_KEYS = [...MODE_KEYS, 'always_ask', 'sandbox']
const SANDBOX_KEYS = ['engine', 'image', 'network']
/** As docker and podman name one: never an option, and one word. */
const IMAGE = /^[a-z0-9][A-Za-z0-9._/:@-]{0,254}$/
/** Agents of one file. */
const MAX_AGENTS = 1_000

const EXEC: TomlPath = ['tools', 'exec']

/** What a file says of where commands run; null: nothing, and they run as `[security]` alone says. What is wrong is the reader's. */
export const readTools = (toml: TomlReader): ToolsConfig | null => {
  const { tools, agents } = toml.document.value
  if (tools === undefined && agents === undefined) return null
  const table = tools === undefined ? {} : (toml.table(['tools'], tools, ['exec']) ?? {})
  const exec = table['exec'] === undefined ? {} : (toml.table(EXEC, table['exec'], GLOBAL_KEYS) ?? {})
  const config = {
    defaults: readModes(toml, EXEC, exec),
    agents: agents === undefined ? {} : readAgents(toml, agents),
    sandbox: readSandbox(toml, exec['sandbox']),
  }
  return config
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

const readAgents = (toml: TomlReader, value: unknown): ToolsConfig['agents'] => {
  const list = toml.table(['agents'], value, ['list'])?.['list']
  const tables = toml.tables(['agents', 'list'], list)
  if (tables.length > MAX_AGENTS) toml.problem(['agents', 'list'], `has ${tables.length} agents, where ${MAX_AGENTS} are allowed`)
  const agents = new Map<string, ModeTable>()
  for (const [index, item] of tables.entries()) {
    const at = ['agents', 'list', index]
    const table = toml.table(at, item, ['id', 'tools'])
    if (table === null) continue
    const id = readId(toml, [...at, 'id'], table['id'])
    const modes = readAgentTools(toml, [...at, 'tools'], table['tools'])
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
  if (id === null || Buffer.byteLength(id) <= MAX_NAME) return id
  toml.problem(path, `has at most ${MAX_NAME} bytes`)
  return null
}

const readAgentTools = (toml: TomlReader, path: TomlPath, value: unknown): ModeTable => {
  const tools = value === undefined ? {} : (toml.table(path, value, ['exec']) ?? {})
  const at = [...path, 'exec']
  return readModes(toml, at, tools['exec'] === undefined ? {} : (toml.table(at, tools['exec'], MODE_KEYS) ?? {}))
}

const readSandbox = (toml: TomlReader, value: unknown): SandboxTable => {
  const path = [...EXEC, 'sandbox']
  const table = value === undefined ? {} : (toml.table(path, value, SANDBOX_KEYS) ?? {})
  const engine = oneOf(toml, [...path, 'engine'], table['engine'], SANDBOX_ENGINES) ?? 'bubblewrap'
  const image = toml.text([...path, 'image'], table['image'])
  if (image !== null && !IMAGE.test(image))
    toml.problem([...path, 'image'], `${JSON.stringify(image)} is no name of an image, such as docker.io/library/debian:13`)
  if (engine === 'bubblewrap' && image !== null)
    toml.problem([...path, 'image'], 'only with engine = "podman" or "docker": bubblewrap shows this host\'s own programs')
  if (engine !== 'bubblewrap' && table['image'] === undefined) toml.problem([...path, 'image'], `is required with engine = "${engine}"`)
  const network = toml.boolean([...path, 'network'], table['network']) ?? false
  if (network) toml.warning([...path, 'network'], 'what runs in the sandbox reaches the network, and what listens on this host')
  return { engine, image, network }
}
