import { type TomlDocument, type TomlPath as Path, TomlReader, type TomlTable as Table, deepFreeze, nameOf } from '../../base/toml.ts'
import type { PatternToken } from '../../protocol/argv-template.ts'
import { isHexId } from '../../protocol/ids.ts'
import { MAX_DESCRIPTION_BYTES, MAX_STDIN_BYTES } from '../../protocol/limits/wire.ts'
import { readAlwaysAsk } from '../approval/always-ask.ts'
import { readArgv, readToken, warnOfMetacharacter } from '../tokens.ts'
import {
  type Acl,
  type AllowEntry,
  type AllowedCommand,
  type Caps,
  DEFAULT_CAPS,
  DETACHING_KEYS,
  EXEC_CAP_KEYS,
  type RunLimits,
  readDetaching,
} from './acl.ts'
import { ASKING_KEYS, readAsking } from './asking-rules.ts'
import { CONFINEMENT_KEYS, type Contain, readConfinement, readContain } from './confinement.ts'
import { readFileGrant, refuseFileCommand } from './file-grants.ts'

export const EXEC_KEYS = [
  'enabled',
  'audit_log_path',
  'default_cwd',
  ...EXEC_CAP_KEYS,
  'contain',
  'allow',
  'always_ask',
  'audit_tasklist_id',
] as const
const RUN_LIMIT_KEYS = [
  'max_stdout_bytes',
  'max_stderr_bytes',
  'max_stdin_bytes',
  'max_duration_secs',
  'warn_stdout_bytes',
  'warn_stderr_bytes',
  'warn_duration_secs',
] as const satisfies readonly (keyof RunLimits)[]
export const ENTRY_KEYS = [
  'agent_id',
  'machine_id',
  'description',
  'discoverable',
  'commands',
  'files',
  ...RUN_LIMIT_KEYS,
  ...ASKING_KEYS,
  ...DETACHING_KEYS,
  ...CONFINEMENT_KEYS,
] as const
export const COMMAND_KEYS = ['argv', 'stdin', 'terminal', 'record', 'watch'] as const

/** The limit that each warning threshold belongs to. */
const CAP_OF_WARNING = {
  warn_stdout_bytes: 'max_stdout_bytes',
  warn_stderr_bytes: 'max_stderr_bytes',
  warn_duration_secs: 'max_duration_secs',
} as const satisfies Partial<Record<keyof RunLimits, keyof RunLimits>>
type WarningKey = keyof typeof CAP_OF_WARNING
const WARNING_KEYS = Object.keys(CAP_OF_WARNING) as WarningKey[]

/** Larger numbers are not exact (2^53 - 1). Seconds are multiplied by 1000 later. */
const MAX_BYTES_CAP = Number.MAX_SAFE_INTEGER
const MAX_SECS_CAP = Math.floor(Number.MAX_SAFE_INTEGER / 1000)

/** Result of parsing. `acl` is valid only without problems. */
export interface AclReading {
  /** Null if the file has no `[exec]`. */
  readonly acl: Acl | null
  /** Each as `file:line: key: text`. */
  readonly problems: string[]
  /** Permitted settings that are probably mistakes, in the same form. */
  readonly warnings: string[]
}

/** Parses an ACL, enabled or not. Pure. The document must have bigints. */
export const readAcl = (document: TomlDocument): AclReading => new AclReader(document).read()

class AclReader {
  readonly #toml: TomlReader

  constructor(document: TomlDocument) {
    this.#toml = new TomlReader(document, 'bad_acl')
  }

  read(): AclReading {
    for (const key of Object.keys(this.#toml.document.value))
      if (key !== 'exec') this.#toml.problem([key], 'unknown key; the ACL has only [exec]. Settings of the daemon are in config.toml')
    const exec = this.#toml.document.value['exec']
    const acl = exec === undefined ? null : deepFreeze(this.#exec(exec))
    return { acl, problems: this.#toml.problems, warnings: this.#toml.warnings }
  }

  #exec(value: unknown): Acl | null {
    const path = ['exec']
    const table = this.#toml.table(path, value, EXEC_KEYS)
    if (!table) return null
    const caps = this.#caps(path, table)
    const contain = readContain(this.#toml, path, table['contain'], 'best_effort')
    const audit = this.#toml.absolutePath([...path, 'audit_log_path'], table['audit_log_path'])
    if (table['audit_log_path'] === undefined)
      this.#toml.problem([...path, 'audit_log_path'], 'is required: nothing runs without a journal')
    return {
      enabled: this.#toml.boolean([...path, 'enabled'], table['enabled']) ?? false,
      caps,
      contain,
      allow: this.#toml
        .tables([...path, 'allow'], table['allow'])
        .flatMap((entry, index) => this.#entry([...path, 'allow', index], entry, { caps, contain })),
      always_ask: readAlwaysAsk(this.#toml, [...path, 'always_ask'], table['always_ask']),
      default_cwd: this.#toml.absolutePath([...path, 'default_cwd'], table['default_cwd']),
      audit_log_path: audit,
      audit_tasklist_id: this.#toml.text([...path, 'audit_tasklist_id'], table['audit_tasklist_id']),
      source: this.#toml.document.path,
    }
  }

  #caps(path: Path, table: Table): Caps {
    const limits = this.#limits(path, table, DEFAULT_CAPS)
    const cap = (key: 'max_concurrent_per_agent' | 'max_concurrent_total'): number =>
      this.#cap([...path, key], table[key]) ?? DEFAULT_CAPS[key]
    const total = cap('max_concurrent_total')
    const given = table['max_concurrent_per_agent'] !== undefined
    // A file that only lowers the total limit stays valid.
    const perAgent = given ? cap('max_concurrent_per_agent') : Math.min(DEFAULT_CAPS.max_concurrent_per_agent, total)
    if (perAgent > total)
      this.#toml.problem([...path, 'max_concurrent_per_agent'], `is ${perAgent}, more than max_concurrent_total (${total})`)
    return { ...limits, max_concurrent_per_agent: perAgent, max_concurrent_total: total }
  }

  /** Limits of a run, from a table or else from its surroundings. A missing warning threshold is at most 50 % of this table's limit. */
  #limits(path: Path, table: Table, around: RunLimits, lowerOnly = false): RunLimits {
    const limits: { -readonly [key in keyof RunLimits]: number } = { ...around }
    for (const key of RUN_LIMIT_KEYS) {
      const given = this.#cap([...path, key], table[key])
      if (given === null) continue
      limits[key] = given
      if (lowerOnly && given > around[key])
        this.#toml.problem([...path, key], `is ${given}, above the ${around[key]} of [exec]; an entry may only lower it`)
    }
    for (const key of WARNING_KEYS) {
      const cap = CAP_OF_WARNING[key]
      if (table[key] === undefined) {
        if (table[cap] !== undefined) limits[key] = Math.min(limits[key], Math.max(1, Math.floor(limits[cap] / 2)))
      } else if (limits[key] > limits[cap]) this.#toml.problem([...path, key], `is ${limits[key]}, above its limit ${cap} (${limits[cap]})`)
    }
    return limits
  }

  #entry(path: Path, value: unknown, { caps, contain }: { caps: Caps; contain: Contain }): AllowEntry | [] {
    const table = this.#toml.table(path, value, ENTRY_KEYS)
    if (!table) return []
    const { max_concurrent_per_agent: _perAgent, max_concurrent_total: _total, ...around } = caps
    const commands = this.#toml.tables([...path, 'commands'], table['commands'])
    const asking = readAsking(this.#toml, path, table)
    const files = this.#toml.tables([...path, 'files'], table['files'])
    const isEmpty = commands.length === 0 && asking.patterns.length === 0 && files.length === 0
    const isList = (key: 'commands' | 'files'): boolean => table[key] === undefined || Array.isArray(table[key])
    if (isEmpty && isList('commands') && isList('files'))
      this.#toml.problem([...path, 'commands'], 'has no command: an entry lists at least one command or files table')
    const described = this.#description([...path, 'description'], table['description'])
    return {
      description: described ?? `allow[${path.at(-1)}]`,
      described,
      discoverable: this.#toml.boolean([...path, 'discoverable'], table['discoverable']) ?? false,
      agent_id: this.#id([...path, 'agent_id'], table['agent_id']),
      machine_id: this.#id([...path, 'machine_id'], table['machine_id']),
      commands: commands.flatMap((command, index) => this.#command([...path, 'commands', index], command)),
      files: files.flatMap((grant, index) => readFileGrant(this.#toml, [...path, 'files', index], grant, asking.ask === 'always')),
      limits: this.#limits(path, table, around, true),
      confinement: readConfinement(this.#toml, path, table, contain),
      asking,
      detaching: readDetaching(this.#toml, path, table),
      line: this.#toml.document.lineOf(path),
    }
  }

  #description(path: Path, value: unknown): string | null {
    const text = this.#toml.text(path, value)
    const size = text === null ? 0 : Buffer.byteLength(text)
    if (size > MAX_DESCRIPTION_BYTES) this.#toml.problem(path, `has ${size} bytes; a description has at most ${MAX_DESCRIPTION_BYTES}`)
    return text
  }

  #command(path: Path, value: unknown): AllowedCommand | [] {
    const table = this.#toml.table(path, value, COMMAND_KEYS)
    if (!table) return []
    const argv = readArgv(this.#toml, [...path, 'argv'], table['argv'])
    refuseFileCommand(this.#toml, [...path, 'argv'], argv)
    const tokens = argv.map((text, index) => this.#token([...path, 'argv', index], text, index))
    const stdin = this.#toml.boolean([...path, 'stdin'], table['stdin']) ?? true
    const terminal = this.#toml.boolean([...path, 'terminal'], table['terminal']) ?? false
    const ofTerminal = (key: 'record' | 'watch'): boolean => {
      const value = this.#toml.boolean([...path, key], table[key]) ?? false
      if (value && !terminal) this.#toml.problem([...path, key], 'is true, and the command does not say terminal = true')
      return value
    }
    const [record, watch] = [ofTerminal('record'), ofTerminal('watch')]
    return { argv, tokens, stdin, terminal, record, watch, line: this.#toml.document.lineOf([...path, 'argv']) }
  }

  #token(path: Path, text: string, index: number): PatternToken {
    const token = readToken(this.#toml, path, text, index === 0)
    warnOfMetacharacter(this.#toml, path, token)
    return token
  }

  #id(path: Path, value: unknown): string {
    if (typeof value === 'string' && isHexId(value)) return value
    this.#toml.problem(path, value === undefined ? 'is required' : `must be 64 lower-case hex digits, not ${nameOf(value)}`)
    return ''
  }

  #cap(path: Path, value: unknown): number | null {
    const key = String(path.at(-1))
    if (key === 'max_stdin_bytes') return this.#toml.wholeNumber(path, value, 0, MAX_STDIN_BYTES)
    return this.#toml.wholeNumber(path, value, 1, key.endsWith('_secs') ? MAX_SECS_CAP : MAX_BYTES_CAP)
  }
}
