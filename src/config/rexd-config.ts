import { AppError, isAppError, textWithNext } from '../base/errors.ts'
import { journalPlaceProblems, writableByOthers } from '../base/file-permissions.ts'
import { absolutePath } from '../base/home.ts'
import { LOG_LEVELS, type LogLevel } from '../base/log-level.ts'
import type { Environment } from '../base/runtime.ts'
import { type TomlDocument, type TomlPath, TomlReader, type TomlTable, deepFreeze, nameOf, readToml } from '../base/toml.ts'
import { readAlwaysAsk } from '../policy/approval/always-ask.ts'
import { exposedDataDir } from '../policy/local/authorize.ts'
import type { LocalPolicy } from '../policy/local/policy.ts'
import { readLocalPolicy } from '../policy/local/read-policy.ts'
import type { ModeTable, ToolsSettings } from '../policy/modes.ts'
import { readSandboxSettings } from '../policy/sandbox/sandbox-settings.ts'
import { ASKS, ASK_FALLBACKS, HOSTS, type Host, SECURITIES } from '../protocol/desk/approval-request.ts'
import { DEFAULT_ANSWER_WITHIN_MS, MAX_ANSWER_WITHIN_MS, MIN_ANSWER_WITHIN_MS } from '../protocol/limits/tools.ts'
import { MAX_NAME } from '../protocol/limits/wire.ts'
import { HTTP_KEYS, type RexdHttpConfig, readHttpConfig } from './rexd-http-config.ts'

/** The sections of a file that `readTools` reads. */
export const TOOLS_SECTIONS = ['tools', 'agents'] as const

const MODE_KEYS = ['host', 'security', 'ask', 'ask_fallback', 'node', 'allowed_hosts']
const GLOBAL_KEYS = [...MODE_KEYS, 'always_ask', 'sandbox']
/** Limit on agents in a file. */
const MAX_AGENTS = 1_000

const EXEC: TomlPath = ['tools', 'exec']

/** The settings for hosts of commands, or null if the file has none, and `[security]` alone applies. Problems go to the reader. */
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

/** Reads a file that only has `[tools.exec]` and `[[agents.list]]`. Throws `bad_config` with all problems. */
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

/** The only key of a table of tools, `exec`. */
const execTable = (toml: TomlReader, path: TomlPath, value: unknown, keys: readonly string[]): TomlTable => {
  const table = toml.table(path, value, ['exec'])
  if (table === null) return {}
  const at = [...path, 'exec']
  if (table['exec'] === undefined) toml.problem(at, 'is required: no other tool exists')
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
    if (agents.has(id)) toml.problem([...at, 'id'], `${JSON.stringify(id)} is listed twice`)
    agents.set(id, modes)
  }
  // No prototype, so that a name such as `__proto__` is an ordinary key.
  return Object.assign(Object.create(null) as object, Object.fromEntries(agents))
}

const readId = (toml: TomlReader, path: TomlPath, value: unknown): string | null => {
  if (value === undefined) toml.problem(path, 'is required: the name of the AI agent, as in x0x mcp --whoami')
  const id = toml.text(path, value)
  if (id === '*') toml.problem(path, 'names one agent: settings for all agents are those of [tools.exec]')
  if (id === null || Buffer.byteLength(id) <= MAX_NAME) return id
  toml.problem(path, `has at most ${MAX_NAME} bytes`)
  return null
}

export interface RexdConfig {
  readonly path: string
  /** Digest of the file that was read, in hex. */
  readonly sha256: string
  /** Whether `rexd --stdio` is allowed. */
  readonly stdio: boolean
  readonly log_level: LogLevel
  /** Settings of `rexd --http`, or null if it is not allowed. */
  readonly http: RexdHttpConfig | null
  /** Null if the file turns the journal off. */
  readonly audit_path: string | null
  readonly policy: LocalPolicy
  /** Milliseconds within which a tool of `x0x mcp` answers. */
  readonly answer_within_ms: number
  /** Hosts of commands, their limits, and their approvers. Absent means this machine with the rules of `policy`. */
  readonly tools?: ToolsSettings
}

export interface RexdConfigReading {
  /** Null if the file cannot be read at all. */
  readonly config: RexdConfig | null
  /** Each as `file:line: key: problem`. */
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
}

const SECTIONS = ['server', 'limits', 'security', 'audit', 'mcp', ...TOOLS_SECTIONS]
/** Keys of the sections. `deploy/docs/config.ts` has the text of each. */
export const SERVER_KEYS = ['stdio', 'log_level', ...HTTP_KEYS] as const
export const MCP_KEYS = ['answer_within_ms'] as const
export const AUDIT_KEYS = ['enabled', 'path'] as const
const DEFAULT_AUDIT = '/var/lib/rexd/audit.log'

/** Reads a file and checks its writers, syntax and meaning. */
export const readRexdConfig = async (file: string, env: Environment): Promise<RexdConfigReading> => {
  const path = absolutePath('the configuration', file)
  let document: TomlDocument
  try {
    document = await readToml(path, 'bad_config', { bigints: true })
  } catch (error) {
    const missing = isAppError(error, 'not_found')
    const remedy = `${path}: no such file; write a configuration (for an AI agent: x0x mcp --init DIR; see docs/rexd.md), or name another one (--config, or rexd_config of x0xd)`
    return { config: null, problems: [missing ? remedy : textWithNext(error)], warnings: [] }
  }
  const toml = new TomlReader(document, 'bad_config')
  const config = read(toml, env)
  return { config: deepFreeze(config), problems: [...writableByOthers(path), ...toml.problems], warnings: toml.warnings }
}

/** Like `readRexdConfig`, but throws `bad_config` for any problem. Its message and `data.problems` have all of them. */
export const loadRexdConfig = async (file: string, env: Environment): Promise<{ config: RexdConfig; warnings: readonly string[] }> => {
  const { config, problems, warnings } = await readRexdConfig(file, env)
  if (config !== null && problems.length === 0) return { config, warnings }
  throw new AppError('bad_config', problems.join('\n'), { data: { file, problems } })
}

/** The error for requested HTTP without a configuration. */
export const withoutHttp = ({ path }: RexdConfig): AppError =>
  new AppError('bad_config', `${path}: server.http_listen is missing: it says where --http listens`)

/** Like `loadRexdConfig`, for HTTP. */
export const loadHttpRexdConfig = async (file: string, env: Environment): Promise<RexdConfig> => {
  const { config } = await loadRexdConfig(file, env)
  if (config.http === null) throw withoutHttp(config)
  return config
}

/** Throws `bad_config` for anything that would keep the REXD of a daemon with this data directory from starting. */
export const checkServedRexdConfig = async (file: string, env: Environment, dataDir: string): Promise<void> => {
  const { policy, tools } = await loadHttpRexdConfig(file, env)
  const problem = tools === undefined ? null : exposedDataDir(policy, dataDir)
  if (problem !== null) throw new AppError('bad_config', `${file}: ${problem}`)
}

const read = (toml: TomlReader, env: Environment): RexdConfig => {
  const { value, path, sha256 } = toml.document
  toml.knownKeys([], value, SECTIONS)
  const section = (name: string, keys: readonly string[]) =>
    value[name] === undefined ? {} : (toml.table([name], value[name], keys) ?? {})
  const server = section('server', SERVER_KEYS)
  const audit = section('audit', AUDIT_KEYS)
  const mcp = section('mcp', MCP_KEYS)
  const tools = readTools(toml)
  const enabled = toml.boolean(['audit', 'enabled'], audit['enabled']) ?? true
  const auditPath = toml.absolutePath(['audit', 'path'], audit['path']) ?? DEFAULT_AUDIT
  if (enabled) for (const problem of journalPlaceProblems(auditPath)) toml.problem(['audit', 'path'], problem)
  if (!enabled) toml.warning(['audit', 'enabled'], 'runs are not logged')
  return {
    path,
    sha256,
    stdio: toml.boolean(['server', 'stdio'], server['stdio']) ?? true,
    log_level: readLogLevel(toml, server['log_level']),
    http: readHttpConfig(toml, server),
    audit_path: enabled ? auditPath : null,
    policy: readLocalPolicy(toml, env),
    answer_within_ms: readAnswerWithin(toml, mcp['answer_within_ms']),
    ...(tools === null ? {} : { tools }),
  }
}

/** The problem of an answer time of tools in milliseconds, or null. */
export const answerWithinProblem = (ms: number): string | null =>
  Number.isSafeInteger(ms) && ms >= MIN_ANSWER_WITHIN_MS && ms <= MAX_ANSWER_WITHIN_MS
    ? null
    : `must be a whole number from ${MIN_ANSWER_WITHIN_MS} to ${MAX_ANSWER_WITHIN_MS}`

const readAnswerWithin = (toml: TomlReader, value: unknown): number => {
  if (value === undefined) return DEFAULT_ANSWER_WITHIN_MS
  const ms = typeof value === 'number' || typeof value === 'bigint' ? Number(value) : NaN
  const problem = answerWithinProblem(ms)
  if (problem !== null) toml.problem(['mcp', 'answer_within_ms'], `${problem}, not ${nameOf(value)}`)
  return problem === null ? ms : DEFAULT_ANSWER_WITHIN_MS
}

const readLogLevel = (toml: TomlReader, value: unknown): LogLevel => {
  if (value === undefined) return 'warn'
  const level = LOG_LEVELS.find((one) => one === value)
  if (level === undefined) toml.problem(['server', 'log_level'], `must be one of ${LOG_LEVELS.join(', ')}, not ${nameOf(value)}`)
  return level ?? 'warn'
}
