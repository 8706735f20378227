import { isAbsolute } from 'node:path'

import { tomlError, type TomlDocument } from '../base/files.ts'
import { isHexId } from '../protocol/ids.ts'
import { DEFAULT_CAPS, type Acl, type AllowedCommand, type AllowEntry, type Caps, type PatternToken, type RunLimits } from './acl.ts'
import { CONFINEMENT_KEYS, readConfinement, readContain, type Complain, type Contain } from './confinement.ts'
import { findMetacharacter, parseToken } from './match.ts'

const EXEC_KEYS = ['enabled', 'default_cwd', 'audit_log_path', 'audit_tasklist_id', 'contain', 'allow', ...Object.keys(DEFAULT_CAPS)]
const RUN_LIMIT_KEYS = [
  'max_stdout_bytes',
  'max_stderr_bytes',
  'max_stdin_bytes',
  'max_duration_secs',
  'warn_stdout_bytes',
  'warn_stderr_bytes',
  'warn_duration_secs',
] as const satisfies readonly (keyof RunLimits)[]
const ENTRY_KEYS = ['description', 'agent_id', 'machine_id', 'commands', ...RUN_LIMIT_KEYS, ...CONFINEMENT_KEYS]
const COMMAND_KEYS = ['argv']

/** The cap that each warning threshold belongs to. */
const CAP_OF_WARNING = {
  warn_stdout_bytes: 'max_stdout_bytes',
  warn_stderr_bytes: 'max_stderr_bytes',
  warn_duration_secs: 'max_duration_secs',
} as const satisfies Partial<Record<keyof RunLimits, keyof RunLimits>>
type WarningKey = keyof typeof CAP_OF_WARNING
const WARNING_KEYS = Object.keys(CAP_OF_WARNING) as WarningKey[]

/** Numbers above this are no longer exact (2^53 - 1); seconds are multiplied by 1000 later. */
const MAX_BYTES_CAP = Number.MAX_SAFE_INTEGER
const MAX_SECS_CAP = Math.floor(Number.MAX_SAFE_INTEGER / 1000)

/** Control characters would reach the journal's reader and the operator's terminal. */
// oxlint-disable-next-line no-control-regex
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/

type Path = readonly (string | number)[]
type Table = Readonly<Record<string, unknown>>

const isTable = (value: unknown): value is Table =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date)

const deepFreeze = <T>(value: T): T => {
  if (typeof value === 'object' && value !== null) for (const part of Object.values(Object.freeze(value))) deepFreeze(part)
  return value
}

/** What a reading found. `acl` is meant only where there is no problem. */
export interface AclReading {
  /** Null where the file has no `[exec]`. */
  readonly acl: Acl | null
  /** Each `file:line: key: what is wrong`. */
  readonly problems: string[]
  /** What is allowed but cannot be meant, in the same form. */
  readonly warnings: string[]
}

/** Reads what a file means, whether or not it is enabled. Pure; the document must carry bigints. */
export const readAcl = (document: TomlDocument): AclReading => new AclReader(document).read()

class AclReader {
  readonly #document: TomlDocument
  readonly #problems: string[] = []
  readonly #warnings: string[] = []

  constructor(document: TomlDocument) {
    this.#document = document
  }

  read(): AclReading {
    this.#knownKeys([], this.#document.value, ['exec'])
    const exec = this.#document.value['exec']
    const acl = exec === undefined ? null : deepFreeze(this.#exec(exec))
    return { acl, problems: this.#problems, warnings: this.#warnings }
  }

  #exec(value: unknown): Acl | null {
    const path = ['exec']
    const table = this.#table(path, value, EXEC_KEYS)
    if (!table) return null
    const caps = this.#caps(path, table)
    const contain = readContain(table['contain'], 'best_effort', this.#complainAt(path))
    const audit = this.#absolutePath([...path, 'audit_log_path'], table['audit_log_path'])
    if (table['audit_log_path'] === undefined) this.#problem([...path, 'audit_log_path'], 'is required: nothing runs without a journal')
    return {
      enabled: this.#boolean([...path, 'enabled'], table['enabled']) ?? false,
      caps,
      contain,
      allow: this.#tables([...path, 'allow'], table['allow']).flatMap((entry, index) =>
        this.#entry([...path, 'allow', index], entry, { caps, contain }),
      ),
      default_cwd: this.#absolutePath([...path, 'default_cwd'], table['default_cwd']),
      audit_log_path: audit,
      audit_tasklist_id: this.#text([...path, 'audit_tasklist_id'], table['audit_tasklist_id']),
      source: this.#document.path,
    }
  }

  #caps(path: Path, table: Table): Caps {
    const limits = this.#limits(path, table, DEFAULT_CAPS)
    const cap = (key: 'max_concurrent_per_agent' | 'max_concurrent_total'): number =>
      this.#cap([...path, key], table[key]) ?? DEFAULT_CAPS[key]
    const total = cap('max_concurrent_total')
    const given = table['max_concurrent_per_agent'] !== undefined
    // A default must not make a file invalid that only lowers the total.
    const perAgent = given ? cap('max_concurrent_per_agent') : Math.min(DEFAULT_CAPS.max_concurrent_per_agent, total)
    if (perAgent > total) this.#problem([...path, 'max_concurrent_per_agent'], `is ${perAgent}, more than max_concurrent_total (${total})`)
    return { ...limits, max_concurrent_per_agent: perAgent, max_concurrent_total: total }
  }

  /**
   * The limits of a run as a table gives them, over those around it. A threshold that is not given is
   * the one around it, but at most half of a cap that is given here.
   */
  #limits(path: Path, table: Table, around: RunLimits, lowerOnly = false): RunLimits {
    const limits: { -readonly [key in keyof RunLimits]: number } = { ...around }
    for (const key of RUN_LIMIT_KEYS) {
      const given = this.#cap([...path, key], table[key])
      if (given === null) continue
      limits[key] = given
      if (lowerOnly && given > around[key])
        this.#problem([...path, key], `is ${given}, above the ${around[key]} of [exec]; an entry may only lower it`)
    }
    for (const key of WARNING_KEYS) {
      const cap = CAP_OF_WARNING[key]
      if (table[key] === undefined) {
        if (table[cap] !== undefined) limits[key] = Math.min(limits[key], Math.max(1, Math.floor(limits[cap] / 2)))
      } else if (limits[key] > limits[cap]) this.#problem([...path, key], `is ${limits[key]}, above its cap ${cap} (${limits[cap]})`)
    }
    return limits
  }

  #entry(path: Path, value: unknown, { caps, contain }: { caps: Caps; contain: Contain }): AllowEntry | [] {
    const table = this.#table(path, value, ENTRY_KEYS)
    if (!table) return []
    const { max_concurrent_per_agent: _perAgent, max_concurrent_total: _total, ...around } = caps
    const commands = this.#tables([...path, 'commands'], table['commands'])
    if (commands.length === 0 && (table['commands'] === undefined || Array.isArray(table['commands'])))
      this.#problem([...path, 'commands'], 'has no command: an entry lists at least one')
    return {
      description: this.#text([...path, 'description'], table['description']) ?? `allow[${path.at(-1)}]`,
      agent_id: this.#id([...path, 'agent_id'], table['agent_id']),
      machine_id: this.#id([...path, 'machine_id'], table['machine_id']),
      commands: commands.flatMap((command, index) => this.#command([...path, 'commands', index], command)),
      limits: this.#limits(path, table, around, true),
      confinement: readConfinement(table, contain, this.#complainAt(path)),
      line: this.#document.lineOf(path),
    }
  }

  #command(path: Path, value: unknown): AllowedCommand | [] {
    const table = this.#table(path, value, COMMAND_KEYS)
    if (!table) return []
    const argv = this.#argv([...path, 'argv'], table['argv'])
    const tokens = argv.map((text, index) => this.#token([...path, 'argv', index], text, index))
    return { argv, tokens, line: this.#document.lineOf([...path, 'argv']) }
  }

  #argv(path: Path, value: unknown): string[] {
    if (!Array.isArray(value) || value.some((token) => typeof token !== 'string')) {
      this.#problem(path, value === undefined ? 'is required' : `must be a list of strings, not ${nameOf(value)}`)
      return []
    }
    if (value.length === 0) this.#problem(path, 'is empty: it names at least the program')
    return value as string[]
  }

  #token(path: Path, text: string, index: number): PatternToken {
    const token = parseToken(text)
    if (typeof token === 'string') {
      this.#problem(path, token)
      return { kind: 'literal', text }
    }
    if (index === 0) this.#program(path, text, token)
    const literal = token.kind === 'url_path' ? token.prefix : text
    const meta = token.kind === 'int' ? null : findMetacharacter([literal])
    if (meta)
      this.#warning(path, `contains ${JSON.stringify(meta.character)}, which every request is refused for: this command can never run`)
    return token
  }

  #program(path: Path, text: string, token: PatternToken): void {
    if (token.kind !== 'literal') this.#problem(path, 'a template cannot name the program')
    else if (text === '') this.#problem(path, 'is empty: it names the program')
    else if (text.includes('/') && !isAbsolute(text)) this.#problem(path, `${JSON.stringify(text)} must be an absolute path or a bare name`)
  }

  #id(path: Path, value: unknown): string {
    if (typeof value === 'string' && isHexId(value)) return value
    this.#problem(path, value === undefined ? 'is required' : `must be 64 lower-case hex digits, not ${nameOf(value)}`)
    return ''
  }

  #cap(path: Path, value: unknown): number | null {
    if (value === undefined) return null
    const max = String(path.at(-1)).endsWith('_secs') ? MAX_SECS_CAP : MAX_BYTES_CAP
    if (typeof value === 'bigint' && value >= 1n && value <= BigInt(max)) return Number(value)
    this.#problem(path, `must be a whole number from 1 to ${max}, not ${nameOf(value)}`)
    return null
  }

  #boolean(path: Path, value: unknown): boolean | null {
    if (value === undefined || typeof value === 'boolean') return value ?? null
    this.#problem(path, `must be true or false, not ${nameOf(value)}`)
    return null
  }

  #text(path: Path, value: unknown): string | null {
    if (value === undefined) return null
    if (typeof value !== 'string') this.#problem(path, `must be a string, not ${nameOf(value)}`)
    else if (value === '') this.#problem(path, 'is empty')
    else if (CONTROL.test(value)) this.#problem(path, 'contains a control character')
    else return value
    return null
  }

  #absolutePath(path: Path, value: unknown): string | null {
    const text = this.#text(path, value)
    if (text !== null && !isAbsolute(text)) this.#problem(path, `${JSON.stringify(text)} must be an absolute path`)
    return text
  }

  #tables(path: Path, value: unknown): unknown[] {
    if (value === undefined) return []
    if (Array.isArray(value)) return value
    this.#problem(path, `must be written [[${path.filter((part) => typeof part === 'string').join('.')}]]`)
    return []
  }

  #table(path: Path, value: unknown, known: readonly string[]): Table | null {
    if (isTable(value)) {
      this.#knownKeys(path, value, known)
      return value
    }
    this.#problem(path, `must be a table, not ${nameOf(value)}`)
    return null
  }

  #knownKeys(path: Path, table: Table, known: readonly string[]): void {
    for (const key of Object.keys(table))
      if (!known.includes(key)) this.#problem([...path, key], `unknown key; known here: ${known.join(', ')}`)
  }

  #complainAt(path: Path): Complain {
    return (key, reason) => this.#problem([...path, key], reason)
  }

  #problem(path: Path, reason: string): void {
    this.#problems.push(tomlError('bad_acl', this.#document, path, reason).message)
  }

  #warning(path: Path, reason: string): void {
    this.#warnings.push(tomlError('bad_acl', this.#document, path, reason).message)
  }
}

/** A value as the operator would recognise it. */
const nameOf = (value: unknown): string => {
  if (typeof value === 'string') return JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value)
  if (Array.isArray(value)) return 'a list'
  if (value instanceof Date) return 'a date'
  // A float such as 4.0 would print as the integer that it is not.
  if (typeof value === 'number') return Number.isInteger(value) ? `${value}.0` : String(value)
  return isTable(value) ? 'a table' : String(value)
}
