import { hostname } from 'node:os'
import { dirname } from 'node:path'
import type { Environment } from '../base/environment.ts'
import { AppError, isAppError, textWithNext } from '../base/errors.ts'
import { writableByOthers } from '../base/file-rights.ts'
import { absolutePath } from '../base/home.ts'
import { didYouMean } from '../base/nearest.ts'
import { type TomlDocument, readToml, tomlError } from '../base/toml-file.ts'
import { type DataPaths, dataDirOf, defaultAclPath, instanceChoice, pathsIn, socketPathProblem } from '../clients/paths.ts'
import { ASK_TIMEOUT_MS } from '../protocol/desk-limits.ts'
import { DEFAULT_API_PORT } from '../protocol/local-limits.ts'
import { OTHER_VARIABLES, SETTINGS, SETTING_KEYS, type SettingKey, type Settings, variableOf } from './settings.ts'

/** Everything the daemon was told, checked, with where it came from. */
export interface DaemonConfig extends Settings {
  readonly name: string | null
  readonly paths: DataPaths
  /** The configuration file that was read, or null where there is none. */
  readonly config_file: string | null
  /** True when somebody named the ACL: then it must exist. */
  readonly exec_acl_explicit: boolean
  /** Where a network half that others start connects to; null: we start it. */
  readonly executor_socket: string | null
}

/** What the command line says of the configuration; null or empty where it is silent. */
export interface ConfigFlags {
  readonly name: string | null
  readonly config: string | null
  readonly dataDir: string | null
  readonly executorSocket: string | null
  /** Settings given as flags, by the flag's name. */
  readonly settings: Readonly<Record<string, string | readonly string[]>>
}

/** The port of upstream's fleet, so that firewalls need one rule. A named instance takes any. */
const DEFAULT_MESH_PORT = 5483

/** Where a daemon listens that is told nothing. */
export const defaultListen = (name: string | null): string => `/ip4/0.0.0.0/tcp/${name === null ? DEFAULT_MESH_PORT : 0}`

const defaultsFor = (name: string | null, paths: DataPaths): Settings => ({
  display_name:
    name ??
    (hostname()
      .replaceAll(/[^A-Za-z0-9._-]/g, '-')
      .slice(0, 64) ||
      'x0x'),
  exec_acl: defaultAclPath(name, paths),
  api_port: name === null ? DEFAULT_API_PORT : 0,
  listen: [defaultListen(name)],
  announce: [],
  bootstrap: [],
  keep: [],
  relay: false,
  relays: [],
  dht: 'auto',
  mdns: true,
  strangers: true,
  containment: 'auto',
  log_level: 'warn',
  share_with_group: false,
  network_user: null,
  require_operator_proof: false,
  ask_timeout: ASK_TIMEOUT_MS / 1000,
  rexd_config: null,
  metrics_token: false,
  syslog: null,
  otlp: null,
})

/** Settings of one source over those of a weaker one; problems are collected, not thrown. */
class Layers {
  readonly problems: string[] = []
  readonly #values: Partial<Record<SettingKey, unknown>> = {}

  set<K extends SettingKey>(key: K, raw: unknown, base: string, complain: (reason: string) => string): void {
    const parsed = SETTINGS[key].parse(raw, base)
    if ('problem' in parsed) this.problems.push(complain(parsed.problem))
    else this.#values[key] = parsed.value
  }

  has(key: SettingKey): boolean {
    return this.#values[key] !== undefined
  }

  over(defaults: Settings): Settings {
    return { ...defaults, ...(this.#values as Partial<Settings>) }
  }
}

const applyFile = (layers: Layers, document: TomlDocument): void => {
  const base = dirname(document.path)
  for (const [key, value] of Object.entries(document.value)) {
    const complain = (reason: string): string => tomlError('bad_config', document, [key], reason).message
    if ((SETTING_KEYS as readonly string[]).includes(key)) layers.set(key as SettingKey, value, base, complain)
    else layers.problems.push(complain(`unknown key${didYouMean(key, SETTING_KEYS)}`))
  }
}

/** Kubernetes sets these in every pod for a Service called x0x or x0x-…, and docker for a link of that alias. */
const SERVICE_VARIABLE = /^X0X_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?|ENV_\w+)$/
/** These share a name with a setting or nearly do, and are told from it by their values. */
const SERVICE_VALUES: readonly (readonly [name: RegExp, value: RegExp])[] = [
  [/^X0X_(?:\w+_)?PORT$/, /^(?:tcp|udp|sctp):\/\//],
  [/^X0X_(?:\w+_)?NAME$/, /^\/[^/]+\/[^/]+$/],
]

const isServiceVariable = (name: string, value: string): boolean =>
  SERVICE_VARIABLE.test(name) || SERVICE_VALUES.some(([names, values]) => names.test(name) && values.test(value))

const withoutServices = (env: Environment): Environment =>
  Object.fromEntries(Object.entries(env).filter(([name, value]) => value === undefined || !isServiceVariable(name, value)))

const applyEnvironment = (layers: Layers, env: Environment): void => {
  const known = [...SETTING_KEYS.map(variableOf), ...OTHER_VARIABLES]
  for (const [name, text] of Object.entries(env)) {
    if (!name.startsWith('X0X_') || text === undefined) continue
    if (!known.includes(name)) layers.problems.push(`${name}: unknown variable${didYouMean(name, known)}`)
  }
  for (const key of SETTING_KEYS) {
    const text = env[variableOf(key)]
    if (text !== undefined) layers.set(key, SETTINGS[key].fromText(text), '', (reason) => `${variableOf(key)}: ${reason}`)
  }
}

const applyFlags = (layers: Layers, flags: ConfigFlags): void => {
  for (const key of SETTING_KEYS) {
    const { flag, fromText } = SETTINGS[key]
    const given = flag === null ? undefined : flags.settings[flag]
    if (given === undefined) continue
    layers.set(key, typeof given === 'string' ? fromText(given) : given, '', (reason) => `--${flag}: ${reason}`)
  }
}

/** The file's document, or null where only the default place was looked at and is empty. */
const readConfigFile = async (path: string, explicit: boolean, problems: string[]): Promise<TomlDocument | null> => {
  try {
    const document = await readToml(path, 'bad_config')
    problems.push(...writableByOthers(path))
    return document
  } catch (error) {
    if (!(isAppError(error, 'not_found') && !explicit)) problems.push(textWithNext(error))
    return null
  }
}

export interface ConfigReading {
  /** Where something is wrong, the weaker source or the default stands in. */
  readonly config: DaemonConfig
  /** Each names the flag, variable, or file, line and key. */
  readonly problems: readonly string[]
}

/** Which instance is meant, and where its files are. Throws `bad_config`. */
export const instanceOf = (flags: ConfigFlags, env: Environment): { readonly name: string | null; readonly paths: DataPaths } => {
  const choice = instanceChoice(flags, env)
  return { name: choice.name, paths: pathsIn(dataDirOf(choice)) }
}

/** Flags over environment over file over defaults. Throws `bad_config` only where not even the data directory is known. */
export const readConfig = async (flags: ConfigFlags, environment: Environment): Promise<ConfigReading> => {
  const env = withoutServices(environment)
  const { name, paths } = instanceOf(flags, env)
  const layers = new Layers()
  const tooLong = socketPathProblem(paths)
  if (tooLong !== null) layers.problems.push(tooLong)

  const chosen = flags.config ?? env['X0X_CONFIG'] ?? null
  const file = await readConfigFile(chosen === null ? paths.config : absolutePath('--config', chosen), chosen !== null, layers.problems)
  if (file !== null) applyFile(layers, file)
  applyEnvironment(layers, env)
  applyFlags(layers, flags)

  const settings = layers.over(defaultsFor(name, paths))
  const config_file = file?.path ?? null
  const executor_socket = flags.executorSocket === null ? null : absolutePath('--executor-socket', flags.executorSocket)
  return {
    config: { ...settings, name, paths, config_file, exec_acl_explicit: layers.has('exec_acl'), executor_socket },
    problems: layers.problems,
  }
}

/** As `readConfig`, but any problem is `bad_config`; its message and `data.problems` have them all. */
export const loadConfig = async (flags: ConfigFlags, env: Environment): Promise<DaemonConfig> => {
  const { config, problems } = await readConfig(flags, env)
  if (problems.length > 0) throw new AppError('bad_config', problems.join('\n'), { data: { problems } })
  return config
}
