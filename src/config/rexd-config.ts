import type { Environment } from '../base/environment.ts'
import { AppError, isAppError, textWithNext } from '../base/errors.ts'
import { journalPlaceProblems, writableByOthers } from '../base/file-rights.ts'
import { absolutePath } from '../base/home.ts'
import { LOG_LEVELS, type LogLevel } from '../base/log-level.ts'
import { type TomlDocument, readToml } from '../base/toml-file.ts'
import { TomlReader, deepFreeze, nameOf } from '../base/toml-reader.ts'
import { exposedDataDir } from '../policy/local/own-places.ts'
import type { LocalPolicy } from '../policy/local/policy.ts'
import { readLocalPolicy } from '../policy/local/read-policy.ts'
import type { ToolsSettings } from '../policy/modes/tools-settings.ts'
import { DEFAULT_ANSWER_WITHIN_MS, MAX_ANSWER_WITHIN_MS, MIN_ANSWER_WITHIN_MS } from '../protocol/tool-limits.ts'
import { HTTP_KEYS, type RexdHttpConfig, readHttpConfig } from './rexd-http-config.ts'
import { TOOLS_SECTIONS, readTools } from './tools-config.ts'

/** All of REXD's configuration file. */
export interface RexdConfig {
  readonly path: string
  /** Of the file as it was read, hex. */
  readonly sha256: string
  /** `rexd --stdio` may be used. */
  readonly stdio: boolean
  readonly log_level: LogLevel
  /** `rexd --http` may be used. */
  readonly http: RexdHttpConfig | null
  /** Null: there is none, because the file says so. */
  readonly audit_path: string | null
  readonly policy: LocalPolicy
  /** A tool of `x0x mcp` answers by then, in milliseconds. */
  readonly answer_within_ms: number
  /** Where commands run, how far they may go and whom to ask; absent: on this host, as `policy` alone says. */
  readonly tools?: ToolsSettings
}

export interface RexdConfigReading {
  /** Null where the file cannot be read at all. */
  readonly config: RexdConfig | null
  /** Each `file:line: key: what is wrong`. */
  readonly problems: readonly string[]
  readonly warnings: readonly string[]
}

const SECTIONS = ['server', 'limits', 'security', 'audit', 'mcp', ...TOOLS_SECTIONS]
const SERVER_KEYS = ['stdio', 'log_level', ...HTTP_KEYS]
const MCP_KEYS = ['answer_within_ms']
const AUDIT_KEYS = ['enabled', 'path']
const DEFAULT_AUDIT = '/var/lib/rexd/audit.log'

/** Reads a file and everything about it: who may write it, its syntax, its meaning. */
export const readRexdConfig = async (file: string, env: Environment): Promise<RexdConfigReading> => {
  const path = absolutePath('the configuration', file)
  let document: TomlDocument
  try {
    document = await readToml(path, 'bad_config', { bigints: true })
  } catch (error) {
    const missing = isAppError(error, 'not_found')
    const remedy = `${path}: there is no configuration; write one (docs/rexd.md begins with one of six lines; for an agent x0x mcp --init makes one), or name another by --config, rexd_config of x0xd`
    return { config: null, problems: [missing ? remedy : textWithNext(error)], warnings: [] }
  }
  const toml = new TomlReader(document, 'bad_config')
  const config = read(toml, env)
  return { config: deepFreeze(config), problems: [...writableByOthers(path), ...toml.problems], warnings: toml.warnings }
}

/** As `readRexdConfig`, but any problem is `bad_config`; its message and `data.problems` have them all. */
export const loadRexdConfig = async (file: string, env: Environment): Promise<{ config: RexdConfig; warnings: readonly string[] }> => {
  const { config, problems, warnings } = await readRexdConfig(file, env)
  if (config !== null && problems.length === 0) return { config, warnings }
  throw new AppError('bad_config', problems.join('\n'), { data: { file, problems } })
}

/** What a configuration without HTTP is for who serves it so. */
export const withoutHttp = ({ path }: RexdConfig): AppError =>
  new AppError('bad_config', `${path}: server.http_listen is missing: it says where --http listens`)

/** As `loadRexdConfig`, to be served over HTTP. */
export const loadHttpRexdConfig = async (file: string, env: Environment): Promise<RexdConfig> => {
  const { config } = await loadRexdConfig(file, env)
  if (config.http === null) throw withoutHttp(config)
  return config
}

/** Throws `bad_config` for what would keep the REXD of a daemon with this data directory from starting. */
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
  if (!enabled) toml.warning(['audit', 'enabled'], 'nothing that is done here is written down')
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

/** What is wrong with a time by which tools answer, in milliseconds; null: nothing. */
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
