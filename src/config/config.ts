import { hostname } from 'node:os'
import { dirname, isAbsolute, resolve } from 'node:path'
import { AppError, attempt, isAppError, textWithNext } from '../base/errors.ts'
import { writableByOthers } from '../base/file-permissions.ts'
import { didYouMean } from '../base/format.ts'
import { NO_DIRECTORY, absolutePath } from '../base/home.ts'
import { LOG_LEVELS } from '../base/log-level.ts'
import type { Environment } from '../base/runtime.ts'
import { type TomlDocument, readToml, tomlError } from '../base/toml.ts'
import { type DataPaths, dataDirOf, defaultAclPath, instanceChoice, pathsIn, socketPathProblem } from '../clients/paths.ts'
import { HOSTS, dialProblem } from '../identity/address.ts'
import { machineIdOfText } from '../identity/machine-key.ts'
import { type AgentId, isHexId } from '../protocol/ids.ts'
import { ASK_TIMEOUT_MS, MAX_ASK_TIMEOUT_MS } from '../protocol/limits/approvals.ts'
import { DEFAULT_API_PORT, MAX_CONFIG_ADDRESSES, MAX_DRAIN_MS } from '../protocol/limits/daemon.ts'
import { MAX_ADDRESS_TEXT, MAX_KEPT_AGENTS } from '../protocol/limits/wire.ts'
import { CONTAINMENT_CHOICES, DHT_CHOICES } from '../protocol/reasons.ts'

/** A value, or the description of a valid one. */
export type Parsed<T> = { readonly value: T } | { readonly problem: string }

interface Setting<T> {
  /** Reads a TOML value. Relative paths start at `base`; if it is empty, at the working directory. */
  readonly parse: (value: unknown, base: string) => Parsed<T>
  /** Turns the text of a flag or variable into a value for `parse`. */
  readonly fromText: (text: string) => unknown
  readonly flag: string | null
}

/** User names that useradd(8) accepts. */
const USER_NAME = /^[A-Za-z_][A-Za-z0-9_.-]{0,31}$/
const DISPLAY_NAME = /^[A-Za-z0-9._-]{1,64}$/
const MULTIADDR = /^\/(ip4|ip6|dns[46]?)\/([^/]+)\/tcp\/([0-9]{1,5})(?:\/p2p\/[1-9A-HJ-NP-Za-km-z]{40,64})?$/

const string =
  <T extends string>(test: (text: string) => boolean, expected: string) =>
  (value: unknown): Parsed<T> =>
    typeof value === 'string' && test(value) ? { value: value as T } : { problem: `must be ${expected}` }

const oneOf = <T extends string>(choices: readonly T[]) =>
  string<T>((text) => (choices as readonly string[]).includes(text), `one of ${choices.join(', ')}`)

const isAddress = (text: string): boolean => {
  const [, kind = '', host = '', port] = MULTIADDR.exec(text) ?? []
  return Buffer.byteLength(text) <= MAX_ADDRESS_TEXT && HOSTS[kind]?.(host) === true && Number(port) <= 65_535
}

const addresses = (value: unknown): Parsed<readonly string[]> => {
  if (!Array.isArray(value)) return { problem: 'must be a list of addresses such as "/ip4/0.0.0.0/tcp/5483"' }
  if (value.length > MAX_CONFIG_ADDRESSES) return { problem: `must have at most ${MAX_CONFIG_ADDRESSES} addresses` }
  const bad: unknown = value.find((item) => typeof item !== 'string' || !isAddress(item))
  return bad === undefined
    ? { value: value as string[] }
    : {
        problem: `${JSON.stringify(bad)} is not an address such as "/ip4/192.0.2.7/tcp/5483" or "/dns4/host.example/tcp/5483/p2p/12D3Koo…"`,
      }
}

/** Dialable addresses of a machine. */
const dialled = (value: unknown): Parsed<readonly string[]> => {
  const parsed = addresses(value)
  const bad = 'value' in parsed ? parsed.value.find((address) => dialProblem(address) !== null) : undefined
  return bad === undefined ? parsed : { problem: `${JSON.stringify(bad)} ${dialProblem(bad)}` }
}

/** Each address names its machine, because the answering peer must prove to be that machine. */
const peers = (value: unknown): Parsed<readonly string[]> => {
  const parsed = dialled(value)
  const bad = 'value' in parsed ? parsed.value.find((address) => machineIdOfText(address.split('/p2p/')[1] ?? '') === null) : undefined
  return bad === undefined
    ? parsed
    : { problem: `${JSON.stringify(bad)} does not end in /p2p/… with the ID of a machine; x0x id prints whole addresses` }
}

const agents = (value: unknown): Parsed<readonly AgentId[]> => {
  if (!Array.isArray(value) || value.length > MAX_KEPT_AGENTS) return { problem: `must be a list of at most ${MAX_KEPT_AGENTS} agent ids` }
  const bad: unknown = value.find((item) => typeof item !== 'string' || !isHexId(item))
  return bad === undefined
    ? { value: value as AgentId[] }
    : { problem: `${JSON.stringify(bad)} is not an agent id: 64 lower-case hex digits, as x0x contacts list --json prints them` }
}

const signers = (value: unknown): Parsed<readonly AgentId[]> => {
  const parsed = agents(value)
  // An empty list could be a wish to refuse all.
  return 'value' in parsed && parsed.value.length === 0 ? { problem: 'must name an agent; leave it out to accept unsigned ACLs' } : parsed
}

const list = (text: string): string[] =>
  text
    .split(',')
    .map((item) => item.trim())
    .filter((item) => item !== '')

const same = (text: string): string => text
const asNumber = (text: string): unknown => (/^[0-9]+$/.test(text) ? Number(text) : text)
const asBoolean = (text: string): unknown => (text === 'true' ? true : text === 'false' ? false : text)

const path = (value: unknown, base: string): Parsed<string> => {
  if (typeof value !== 'string' || value === '' || value.includes('\0')) return { problem: 'must be a path' }
  const absolute = isAbsolute(value) ? value : attempt(() => resolve(base, value))
  return absolute === null ? { problem: `${JSON.stringify(value)} is relative, and ${NO_DIRECTORY}` } : { value: absolute }
}

const port = (value: unknown): Parsed<number> =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= 65_535
    ? { value }
    : { problem: 'must be a port, 0 to 65535 (0 = any free one)' }

/** Traces only go to a collector on this host, because the network process sends them. */
const COLLECTOR = /^http:\/\/(?:127\.0\.0\.1|localhost|\[::1\]):([1-9][0-9]{0,4})\/[!-~]*$/

const collector = (value: unknown): Parsed<string> =>
  typeof value === 'string' && value.length <= MAX_ADDRESS_TEXT && Number(COLLECTOR.exec(value)?.[1] ?? Number.NaN) <= 65_535
    ? { value }
    : { problem: 'must be an address on this machine, such as "http://127.0.0.1:4318/v1/traces"' }

const askTimeout = (value: unknown): Parsed<number> =>
  typeof value === 'number' && Number.isInteger(value) && value >= 1 && value <= MAX_ASK_TIMEOUT_MS / 1000
    ? { value }
    : { problem: `must be whole seconds, 1 to ${MAX_ASK_TIMEOUT_MS / 1000}` }

const drainTimeout = (value: unknown): Parsed<number> =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 && value <= MAX_DRAIN_MS / 1000
    ? { value }
    : { problem: `must be whole seconds, 0 (off) to ${MAX_DRAIN_MS / 1000}` }

const boolean = (value: unknown): Parsed<boolean> => (typeof value === 'boolean' ? { value } : { problem: 'must be true or false' })

/** Every setting, with its parser. `deploy/docs/config.ts` has the text of each. */
export const SETTINGS = {
  /** The name in this agent's card, which others see. */
  display_name: {
    parse: string((text) => DISPLAY_NAME.test(text), '1 to 64 letters, digits, "." "_" or "-"'),
    fromText: same,
    flag: null,
  },
  exec_acl: { parse: path, fromText: same, flag: 'exec-acl' },
  /** Agents whose signature the ACL needs. None: it need not be signed. */
  acl_signers: { parse: signers, fromText: list, flag: null },
  /** TCP port on 127.0.0.1; 0 means any free one. */
  api_port: { parse: port, fromText: asNumber, flag: 'api-port' },
  listen: { parse: addresses, fromText: list, flag: 'listen' },
  /** Further addresses to announce, such as that of a port forward. */
  announce: { parse: dialled, fromText: list, flag: null },
  /** Peers that are dialled at the start. */
  bootstrap: { parse: peers, fromText: list, flag: 'bootstrap' },
  /** Contacts that always have a connection, in a mesh of any size. */
  keep: { parse: agents, fromText: list, flag: null },
  /** Carry connections between contacts that cannot reach each other. */
  relay: { parse: boolean, fromText: asBoolean, flag: null },
  /** Machines that relay connections to this one, preferred over contacts that relay. */
  relays: { parse: peers, fromText: list, flag: null },
  /** How this daemon takes part in the DHT of cards. */
  dht: { parse: oneOf(DHT_CHOICES), fromText: same, flag: null },
  /** Find peers on the local network. */
  mdns: { parse: boolean, fromText: asBoolean, flag: null },
  /** Whether machines may connect that contacts, pins, the ACL and the bootstrap list do not name. */
  strangers: { parse: boolean, fromText: asBoolean, flag: null },
  /** User of the network process if root starts the daemon. Null means x0x, or a number without a user. */
  network_user: {
    parse: string((text) => USER_NAME.test(text), 'the name of a user'),
    fromText: same,
    flag: null,
  },
  /** For a system daemon that its group uses: directory 0750, token and operator key 0640, socket 0660. */
  share_with_group: { parse: boolean, fromText: asBoolean, flag: null },
  /** Requires an operator's proof for every request to another agent. */
  require_operator_proof: { parse: boolean, fromText: asBoolean, flag: null },
  /** Seconds that approvers on this machine and on other agents have to decide. */
  ask_timeout: { parse: askTimeout, fromText: asNumber, flag: null },
  /** Seconds that runs may go on after SIGTERM, while new ones are refused. 0 ends them at once. */
  drain_timeout: { parse: drainTimeout, fromText: asNumber, flag: 'drain-timeout' },
  /** Configuration of the REXD that the daemon also serves, or null. */
  rexd_config: { parse: path, fromText: same, flag: null },
  /** A datagram socket on this host that receives a copy of each journal line, or null. */
  syslog: { parse: path, fromText: same, flag: null },
  /** The collector on this host that receives traces, or null. */
  otlp: { parse: collector, fromText: same, flag: null },
  /** Makes a token for collectors that only opens GET /metrics. */
  metrics_token: { parse: boolean, fromText: asBoolean, flag: null },
  /** The mechanism that holds the process tree of a run together. */
  containment: { parse: oneOf(CONTAINMENT_CHOICES), fromText: same, flag: null },
  log_level: { parse: oneOf(LOG_LEVELS), fromText: same, flag: null },
} satisfies Readonly<Record<string, Setting<unknown>>>

export type SettingKey = keyof typeof SETTINGS

/** Settings with the default null. */
type Nullable = 'network_user' | 'otlp' | 'rexd_config' | 'syslog'

/** The settings of `config.toml`, the environment and flags, under the names of the file. */
export type Settings = {
  readonly [K in SettingKey]: ((typeof SETTINGS)[K] extends Setting<infer T> ? T : never) | (K extends Nullable ? null : never)
}

export const SETTING_KEYS = Object.keys(SETTINGS) as SettingKey[]

/** Such as `X0X_API_PORT` for `api_port`. */
export const variableOf = (key: SettingKey): string => `X0X_${key.toUpperCase()}`

/** Known variables that are not settings: the instance, those of the CLI, and the choice of primitives. */
export const OTHER_VARIABLES = [
  'X0X_NAME',
  'X0X_CONFIG',
  'X0X_DATA_DIR',
  'X0X_API',
  'X0X_API_TOKEN',
  'X0X_CRYPTO',
  'X0X_OPEN_FILES',
  'X0X_ENROL',
] as const

export const dataDirMode = (settings: Pick<Settings, 'share_with_group'>): number => (settings.share_with_group ? 0o750 : 0o700)

/** The complete, checked configuration with its sources. */
export interface DaemonConfig extends Settings {
  readonly name: string | null
  readonly paths: DataPaths
  readonly config_file: string | null
  /** True if the user named the ACL, which then must exist. */
  readonly exec_acl_explicit: boolean
  /** The socket where a separately started network process connects, or null if the daemon starts it. */
  readonly executor_socket: string | null
}

/** The flags about the configuration, or null or empty if not given. */
export interface ConfigFlags {
  readonly name: string | null
  readonly config: string | null
  readonly dataDir: string | null
  readonly executorSocket: string | null
  /** Settings given as flags, under the flags' names. */
  readonly settings: Readonly<Record<string, string | readonly string[]>>
}

/** The port of upstream's fleet, so that firewalls need one rule. A named instance takes any port. */
const DEFAULT_MESH_PORT = 5483

export const defaultListen = (name: string | null): string => `/ip4/0.0.0.0/tcp/${name === null ? DEFAULT_MESH_PORT : 0}`

const defaultsFor = (name: string | null, paths: DataPaths): Settings => ({
  display_name:
    name ??
    (hostname()
      .replaceAll(/[^A-Za-z0-9._-]/g, '-')
      .slice(0, 64) ||
      'x0x'),
  exec_acl: defaultAclPath(name, paths),
  acl_signers: [],
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
  drain_timeout: 0,
  rexd_config: null,
  metrics_token: false,
  syslog: null,
  otlp: null,
})

/** Settings of one source over those of weaker ones. Problems are collected, not thrown. */
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

/** Variables that Kubernetes sets in every pod for a Service x0x or x0x-…, and docker for a link of that alias. */
const SERVICE_VARIABLE = /^X0X_(?:\w+_)?(?:SERVICE_HOST|SERVICE_PORT(?:_\w+)?|PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?|ENV_\w+)$/
/** Variables of the same kind whose names could be settings. Their values tell them apart. */
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

/** The document of the file, or null if the default file does not exist. */
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
  /** A wrong value is replaced by that of a weaker source or by the default. */
  readonly config: DaemonConfig
  /** Each problem names its flag, its variable, or file, line and key. */
  readonly problems: readonly string[]
}

/** The chosen instance and its files. Throws `bad_config`. */
export const instanceOf = (flags: ConfigFlags, env: Environment): { readonly name: string | null; readonly paths: DataPaths } => {
  const choice = instanceChoice(flags, env)
  return { name: choice.name, paths: pathsIn(dataDirOf(choice)) }
}

/** Reads flags over environment over file over defaults. Throws `bad_config` only if the data directory is unknown. */
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

/** Like `readConfig`, but throws `bad_config` for any problem. Its message and `data.problems` have all of them. */
export const loadConfig = async (flags: ConfigFlags, env: Environment): Promise<DaemonConfig> => {
  const { config, problems } = await readConfig(flags, env)
  if (problems.length > 0) throw new AppError('bad_config', problems.join('\n'), { data: { problems } })
  return config
}
