import { lstatSync, statSync } from 'node:fs'
import { isAbsolute, normalize } from 'node:path'
import { errnoOf, errorText } from '../../base/errors.ts'
import { realPath } from '../../base/path-resolution.ts'
import type { Environment } from '../../base/runtime.ts'
import type { TomlPath, TomlReader, TomlTable } from '../../base/toml.ts'
import { MAX_CONSOLE_CONNECTIONS, MAX_CONSOLE_RUNS } from '../../protocol/console/messages.ts'
import { MAX_FILE_CHUNK } from '../../protocol/limits/rexd.ts'
import { MAX_NAME } from '../../protocol/limits/wire.ts'
import type { Capability } from '../../protocol/rexd/fields.ts'
import { isHarmless, scrubbedEnvironment } from '../environment.ts'
import { readArgv, readToken } from '../tokens.ts'
import { judgeWritablePrograms } from '../writable-programs.ts'
import type { Root } from './file-permit.ts'
import { type CommandRule, DEFAULT_LOCAL_LIMITS, type LocalLimits, type LocalPolicy } from './policy.ts'

/** Configuration keys that grant a capability, with their defaults. */
const GRANTS = [
  ['allow_shell', 'exec.shell', false],
  ['allow_detach', 'exec.detach', false],
  ['allow_pty', 'pty', false],
  ['allow_write', 'fs.write', true],
] as const satisfies readonly (readonly [key: string, capability: Capability, isDefault: boolean])[]
/** `deploy/docs/config.ts` has the text of each. */
export const SECURITY_KEYS = [
  ...GRANTS.map(([key]) => key),
  'allowed_roots',
  'allow_commands',
  'deny_commands',
  'allow_targets',
  'targets_as_operator',
  'allow_env',
  'pass_env',
  'path',
] as const
/** Entry of `allow_targets` for all agents. Their own ACLs decide. */
const ANY_TARGET = '*'
const RULE_KEYS = ['argv', 'args']

/** Names that all shells and programs accept (POSIX.1-2017, 8.1). */
const VARIABLE = /^[A-Za-z_][A-Za-z0-9_]{0,127}$/
/** Variables that can make a program run other code than the allowed program. */
const DANGEROUS_VARIABLES =
  /^(LD_.*|DYLD_.*|GLIBC_TUNABLES|GCONV_PATH|LOCPATH|BASH_ENV|ENV|BASH_FUNC_.*|BASHOPTS|SHELLOPTS|PS4|PROMPT_COMMAND|ZDOTDIR|NODE_(OPTIONS|PATH)|PYTHON.*|PERL.*|RUBY.*|GIT_.*|(_|JDK_)?JAVA_.*|CLASSPATH|LESS(OPEN|CLOSE)|PAGER|EDITOR|VISUAL|BROWSER|IFS|PATH|SHELL)$/

const MAX: Readonly<Record<keyof LocalLimits, number>> = {
  max_output_bytes: Number.MAX_SAFE_INTEGER,
  max_file_read_bytes: MAX_FILE_CHUNK,
  max_processes_per_session: 1_024,
  default_timeout_ms: Number.MAX_SAFE_INTEGER,
  hard_timeout_ms: Number.MAX_SAFE_INTEGER,
  max_concurrent_sessions: 1_024,
  max_detached_processes: 1_024,
  max_detached_ms: Number.MAX_SAFE_INTEGER,
}

/** Reads `[limits]` and `[security]` of the REXD configuration. The reader collects problems. `own`: the environment of this process. */
export const readLocalPolicy = (toml: TomlReader, own: Environment): LocalPolicy => {
  const { value, path: source } = toml.document
  const limits = readLimits(toml, value['limits'])
  const security = value['security'] === undefined ? {} : (toml.table(['security'], value['security'], SECURITY_KEYS) ?? {})
  const granted = new Set<Capability>(['exec', 'exec.input', 'fs.read', 'events'])
  for (const [key, capability, isDefault] of GRANTS)
    if (toml.boolean(['security', key], security[key]) ?? isDefault) granted.add(capability)
  const targets = readTargets(toml, security['allow_targets'])
  if (targets.length > 0) granted.add('target')
  const policy: LocalPolicy = {
    source,
    roots: readRoots(toml, security['allowed_roots']),
    granted,
    allow_commands: security['allow_commands'] === undefined ? null : readRules(toml, security, 'allow_commands'),
    deny_commands: readRules(toml, security, 'deny_commands'),
    targets: targets.includes(ANY_TARGET) ? null : targets,
    targets_as_operator: toml.boolean(['security', 'targets_as_operator'], security['targets_as_operator']) ?? false,
    allow_env: readVariables(toml, security, 'allow_env'),
    any_program: false,
    env: readEnvironment(toml, security, own),
    limits,
  }
  judgeWritablePrograms(toml, policy)
  return policy
}

const readTargets = (toml: TomlReader, value: unknown): string[] => {
  const at: TomlPath = ['security', 'allow_targets']
  const targets = toml.strings(at, value) ?? []
  for (const [index, target] of targets.entries()) {
    const length = Buffer.byteLength(target)
    if (length < 1 || length > MAX_NAME)
      toml.problem([...at, index], `a name or an id of an agent has 1 to ${MAX_NAME} bytes, or is "*" for any`)
  }
  return targets
}

const readLimits = (toml: TomlReader, value: unknown): LocalLimits => {
  const keys = Object.keys(DEFAULT_LOCAL_LIMITS) as (keyof LocalLimits)[]
  const limits: { -readonly [K in keyof LocalLimits]: number } = { ...DEFAULT_LOCAL_LIMITS }
  const table = value === undefined ? {} : (toml.table(['limits'], value, keys) ?? {})
  for (const key of keys) limits[key] = toml.wholeNumber(['limits', key], table[key], 1, MAX[key]) ?? limits[key]
  if (limits.default_timeout_ms > limits.hard_timeout_ms) {
    if (table['default_timeout_ms'] !== undefined)
      toml.problem(['limits', 'default_timeout_ms'], `is ${limits.default_timeout_ms}, above hard_timeout_ms (${limits.hard_timeout_ms})`)
    // A file that only lowers the hard limit stays valid.
    limits.default_timeout_ms = limits.hard_timeout_ms
  }
  return Object.freeze(limits)
}

const readRoots = (toml: TomlReader, value: unknown): Root[] => {
  const at: TomlPath = ['security', 'allowed_roots']
  const tables = toml.tables(at, value)
  if (tables.length === 0 && (value === undefined || Array.isArray(value)))
    toml.problem(at, 'is required: nothing may be looked at, and nothing runs anywhere, without a root')
  return tables.flatMap((item, index) => {
    const table = toml.table([...at, index], item, ['path'])
    if (table === null) return []
    const place = [...at, index, 'path']
    const path = toml.absolutePath(place, table['path'])
    if (table['path'] === undefined) toml.problem(place, 'is required')
    return path === null ? [] : rootAt(toml, place, path)
  })
}

const rootAt = (toml: TomlReader, place: TomlPath, text: string): Root[] => {
  const plain = normalize(text)
  const path = plain === '/' ? '/' : plain.replace(/\/$/, '')
  try {
    const real = realPath(path)
    const info = statSync(real, { bigint: true })
    if (!info.isDirectory()) toml.problem(place, `${JSON.stringify(path)} is not a directory`)
    if (real === '/') toml.warning(place, 'is the whole file system: clients can read and write everything that this user can')
    if (lstatSync(path).isSymbolicLink()) toml.warning(place, `is a link; the root is its current target: ${JSON.stringify(real)}`)
    return [Object.freeze({ path, real, dev: info.dev, ino: info.ino })]
  } catch (error) {
    const missing = errnoOf(error) === 'ENOENT'
    toml.problem(place, missing ? `${JSON.stringify(path)} does not exist: create the directory, or name another` : errorText(error))
    return []
  }
}

const readRules = (toml: TomlReader, security: TomlTable, key: 'allow_commands' | 'deny_commands'): CommandRule[] =>
  toml.tables(['security', key], security[key]).flatMap((item, index) => {
    const at = ['security', key, index]
    const table = toml.table(at, item, RULE_KEYS)
    if (table === null) return []
    const argv = readArgv(toml, [...at, 'argv'], table['argv'])
    const args = table['args']
    if (args !== undefined && args !== 'any') toml.problem([...at, 'args'], 'must be "any", which allows any further arguments')
    const tokens = argv.map((text, token) => readToken(toml, [...at, 'argv', token], text, token === 0))
    return [{ argv, tokens, anyArguments: args === 'any', line: toml.document.lineOf(at) }]
  })

const readVariables = (toml: TomlReader, security: TomlTable, key: 'allow_env' | 'pass_env'): string[] => {
  const names = toml.strings(['security', key], security[key]) ?? []
  for (const [index, name] of names.entries()) {
    if (!VARIABLE.test(name)) toml.problem(['security', key, index], `${JSON.stringify(name)} is not a variable name`)
    else if (key === 'pass_env') continue
    else if (DANGEROUS_VARIABLES.test(name))
      toml.problem(['security', key, index], `${name} can change which program runs: use pass_env, and do not let clients set it`)
    else if (!isHarmless(name))
      toml.warning(
        ['security', key, index],
        `${name} may be dangerous: clients set it for every allowed program, and many programs load or start what a variable names`,
      )
  }
  return names
}

const readEnvironment = (toml: TomlReader, security: TomlTable, own: Environment) => {
  const path = readPath(toml, security['path'])
  const passed = readVariables(toml, security, 'pass_env').flatMap((name) =>
    Object.hasOwn(own, name) ? [[name, own[name] ?? ''] as const] : [],
  )
  return Object.freeze({ ...scrubbedEnvironment(), ...Object.fromEntries(passed), ...(path === null ? {} : { PATH: path }) })
}

const readPath = (toml: TomlReader, value: unknown): string | null => {
  const at: TomlPath = ['security', 'path']
  const directories = toml.strings(at, value)
  for (const [index, directory] of (directories ?? []).entries())
    if (!isAbsolute(directory) || directory.includes(':'))
      toml.problem([...at, index], `${JSON.stringify(directory)} must be an absolute path without a colon`)
  return directories === null || directories.length === 0 ? null : directories.join(':')
}

/** Variables with the working directory of the host, which is not that of its commands. */
const NOT_INHERITED = ['PWD', 'OLDPWD']

/**
 * Policy of a console: its clients may do what its user may, which is any program in any directory, on a terminal, with the host's
 * environment. The user grants this by starting a console in the foreground. No network client can reach it.
 */
export const consolePolicy = (own: Environment): LocalPolicy => {
  const { dev, ino } = statSync('/', { bigint: true })
  const inherited = Object.entries(own).flatMap(([name, value]) =>
    value === undefined || NOT_INHERITED.includes(name) ? [] : [[name, value] as const],
  )
  return Object.freeze({
    source: 'x0x console',
    roots: Object.freeze([Object.freeze({ path: '/', real: '/', dev, ino })]),
    granted: new Set(['exec', 'exec.input', 'pty', 'events'] as const),
    allow_commands: null,
    deny_commands: [],
    targets: [],
    targets_as_operator: false,
    allow_env: null,
    any_program: true,
    env: Object.freeze(Object.fromEntries(inherited)),
    unattended: true,
    limits: Object.freeze({
      ...DEFAULT_LOCAL_LIMITS,
      // A person watches and ends runs that take too long.
      default_timeout_ms: Number.MAX_SAFE_INTEGER,
      hard_timeout_ms: Number.MAX_SAFE_INTEGER,
      // The screen shows all output; replies and transcripts have their own limits.
      max_output_bytes: Number.MAX_SAFE_INTEGER,
      max_processes_per_session: MAX_CONSOLE_RUNS,
      // Each connection uses at most one session, and some sessions are idle.
      max_concurrent_sessions: 2 * MAX_CONSOLE_CONNECTIONS,
    }),
  })
}
