import { type TomlPath, type TomlReader, nameOf } from '../../base/toml.ts'
import { FILE_COMMAND_PREFIX, type FileCommand, changesFiles, isFileCommand, isPlainPath } from '../../protocol/file-command.ts'
import { isWithin } from '../sandbox/autostart-places.ts'
import { quote } from '../tokens.ts'
import { isUserName } from './confinement.ts'

/** One `[[exec.allow.files]]` table: file commands that a pair may run below one directory. */
export interface FileGrant {
  /** Absolute directory, in plain form. */
  readonly root: string
  readonly read: boolean
  readonly write: boolean
  /** True if missing directories may be created. */
  readonly create_dirs: boolean
  /** Most bytes of one new file. */
  readonly max_file_bytes: number
  /** Most bytes of all files below the root, checked before a new file takes its name. Null means no limit. */
  readonly max_total_bytes: number | null
  /** Maximum permission bits of new files. */
  readonly mode: number
  /** Name of the user that owns new files, or null for the daemon's user. */
  readonly owner: string | null
  /** True if an approver of this machine decides about each change and each file that is read. */
  readonly ask: boolean
  readonly line: number
}

export const FILE_GRANT_KEYS = [
  'root',
  'read',
  'write',
  'create_dirs',
  'max_file_bytes',
  'max_total_bytes',
  'mode',
  'owner',
  'ask',
] as const

/** Keys that only mean something with `write = true`. */
const WRITE_KEYS = ['create_dirs', 'max_file_bytes', 'max_total_bytes', 'mode', 'owner'] as const

export const DEFAULT_MAX_FILE_BYTES = 1024 * 1024 * 1024
export const DEFAULT_MODE = 0o644

/** Adds a problem if a rule names a file command. Rules never apply to those. */
export const refuseFileCommand = (toml: TomlReader, path: TomlPath, argv: readonly string[]): void => {
  if (isFileCommand(argv)) toml.problem(path, `${quote(argv[0])} is a file command; allow it with [[exec.allow.files]]`)
}

/**
 * Reads one table. Returns an empty list for other values and for an invalid root. `entryAsks` means that its entry says `ask = "always"`,
 * which holds for its files too.
 */
export const readFileGrant = (toml: TomlReader, path: TomlPath, value: unknown, entryAsks: boolean): FileGrant | [] => {
  const table = toml.table(path, value, FILE_GRANT_KEYS)
  if (!table) return []
  const flag = (key: 'read' | 'write' | 'create_dirs' | 'ask'): boolean => toml.boolean([...path, key], table[key]) ?? false
  const count = (key: 'max_file_bytes' | 'max_total_bytes'): number | null =>
    toml.wholeNumber([...path, key], table[key], 1, Number.MAX_SAFE_INTEGER)
  const [read, write] = [flag('read'), flag('write')]
  if (!read && !write) toml.problem(path, 'allows nothing: set read = true or write = true')
  for (const key of WRITE_KEYS) if (table[key] !== undefined && !write) toml.problem([...path, key], 'needs write = true')
  const grant = {
    read,
    write,
    create_dirs: flag('create_dirs'),
    max_file_bytes: count('max_file_bytes') ?? DEFAULT_MAX_FILE_BYTES,
    max_total_bytes: count('max_total_bytes'),
    mode: readMode(toml, [...path, 'mode'], table['mode']),
    owner: readOwner(toml, [...path, 'owner'], table['owner']),
    ask: flag('ask') || entryAsks,
    line: toml.document.lineOf(path),
  }
  if (entryAsks && table['ask'] === false) toml.problem([...path, 'ask'], 'is false, and the entry says ask = "always"')
  const root = readRoot(toml, [...path, 'root'], table['root'])
  return root === null ? [] : { root, ...grant }
}

const readRoot = (toml: TomlReader, path: TomlPath, value: unknown): string | null => {
  const text = toml.text(path, value)
  if (value === undefined) toml.problem(path, 'is required')
  if (text === null || isPlainPath(text)) return text
  toml.problem(path, `must be an absolute path without "." and ".." and without "/" at its end, not ${quote(text)}`)
  return null
}

const readMode = (toml: TomlReader, path: TomlPath, value: unknown): number => {
  if (value === undefined) return DEFAULT_MODE
  const [, special, bits] = (typeof value === 'string' && /^([0-7]?)([0-7]{3})$/.exec(value)) || []
  if (bits === undefined) toml.problem(path, `must be octal digits as a string, such as "0644", not ${nameOf(value)}`)
  else if (special !== '' && special !== '0') toml.problem(path, `is ${nameOf(value)}; setuid, setgid and sticky bits are not allowed`)
  else return Number.parseInt(bits, 8)
  return DEFAULT_MODE
}

const readOwner = (toml: TomlReader, path: TomlPath, value: unknown): string | null => {
  if (value === undefined || (typeof value === 'string' && isUserName(value))) return value ?? null
  toml.problem(path, 'must be the name of a user')
  return null
}

/** Rights of a table, named after the file command that needs them. */
export const FILE_RIGHTS = ['read', 'write', 'mkdir'] as const
export type FileRight = (typeof FILE_RIGHTS)[number]

export const rightOf = (command: FileCommand): FileRight => (!changesFiles(command) ? 'read' : command.op === 'mkdir' ? 'mkdir' : 'write')

export const hasRight = ({ read, write, create_dirs }: FileGrant, right: FileRight): boolean =>
  right === 'read' ? read : write && (right === 'write' || create_dirs)

/** A table as a rule, such as `@read /srv/app/`. No request has this argv, because a path has no slash at its end. */
export const ruleOf = ({ root }: FileGrant, right: FileRight): string[] => [
  `${FILE_COMMAND_PREFIX}${right}`,
  root === '/' ? root : `${root}/`,
]

/** An ACL entry, as far as files matter. */
interface FileEntry {
  readonly files: readonly FileGrant[]
}

/** A table, and the entry that holds it. */
export interface MatchedGrant<Entry extends FileEntry> {
  readonly entry: Entry
  readonly grant: FileGrant
}

/** The first table, in the order of the file, that allows the command. */
export const findGrant = <Entry extends FileEntry>(entries: readonly Entry[], command: FileCommand): MatchedGrant<Entry> | null => {
  const right = rightOf(command)
  for (const entry of entries)
    for (const grant of entry.files) if (isWithin(command.path, grant.root) && hasRight(grant, right)) return { entry, grant }
  return null
}

/** Why no table allows a command, for the operator. */
export const describeNoGrant = (entries: readonly FileEntry[], command: FileCommand): string => {
  const grants = entries.flatMap(({ files }) => files)
  if (grants.length === 0) return 'no entry of this pair has a [[exec.allow.files]] table'
  const around = grants.filter(({ root }) => isWithin(command.path, root))
  // A table with write and without create_dirs is nearer to @mkdir than one without write.
  const nearest = around.find(({ write }) => write) ?? around[0]
  if (nearest === undefined) return `${quote(command.path)} is below none of the roots ${grants.map(({ root }) => quote(root)).join(', ')}`
  const key = !changesFiles(command) ? 'read' : nearest.write ? 'create_dirs' : 'write'
  return `line ${nearest.line} (root ${quote(nearest.root)}) does not say ${key} = true`
}
