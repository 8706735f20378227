import type { TomlPath, TomlReader } from '../../base/toml.ts'
import { type FileCommand, changesFiles, isPlainPath } from '../../protocol/file-command.ts'
import { quote } from '../tokens.ts'

/** One `[[exec.allow.files]]` table: file commands that a pair may run below one directory. */
export interface FileGrant {
  /** Absolute directory. */
  readonly root: string
  readonly read: boolean
  readonly write: boolean
  /** True if missing directories may be created. */
  readonly create_dirs: boolean
  /** Most bytes of one new file. */
  readonly max_file_bytes: number
  /** Most bytes of all files below the root, checked before a new file takes its name. Null means no limit. */
  readonly max_total_bytes: number | null
  /** Permission bits of new files. */
  readonly mode: number
  /** Name of the user that owns new files, or null for the daemon's user. */
  readonly owner: string | null
  readonly line: number
}

export const FILE_GRANT_KEYS = ['root', 'read', 'write', 'create_dirs', 'max_file_bytes', 'max_total_bytes', 'mode', 'owner'] as const

/** Keys that only mean something with `write = true`. */
const WRITE_KEYS = ['create_dirs', 'max_file_bytes', 'max_total_bytes', 'mode', 'owner'] as const

const DEFAULT_MAX_FILE_BYTES = 1024 * 1024 * 1024
const DEFAULT_MODE = 0o644

/** Reads one table. Returns an empty list for other values. */
export const readFileGrant = (toml: TomlReader, path: TomlPath, value: unknown): FileGrant | [] => {
  const table = toml.table(path, value, FILE_GRANT_KEYS)
  if (!table) return []
  const flag = (key: 'read' | 'write' | 'create_dirs'): boolean => toml.boolean([...path, key], table[key]) ?? false
  const count = (key: 'max_file_bytes' | 'max_total_bytes'): number | null =>
    toml.wholeNumber([...path, key], table[key], 1, Number.MAX_SAFE_INTEGER)
  const [read, write] = [flag('read'), flag('write')]
  if (!read && !write) toml.problem(path, 'allows nothing: set read = true or write = true')
  for (const key of WRITE_KEYS) if (table[key] !== undefined && !write) toml.problem([...path, key], 'needs write = true')
  return {
    root: readRoot(toml, [...path, 'root'], table['root']),
    read,
    write,
    create_dirs: flag('create_dirs'),
    max_file_bytes: count('max_file_bytes') ?? DEFAULT_MAX_FILE_BYTES,
    max_total_bytes: count('max_total_bytes'),
    mode: readMode(toml, [...path, 'mode'], table['mode']),
    owner: toml.text([...path, 'owner'], table['owner']),
    line: toml.document.lineOf(path),
  }
}

const readRoot = (toml: TomlReader, path: TomlPath, value: unknown): string => {
  const text = toml.text(path, value)
  if (value === undefined) toml.problem(path, 'is required')
  else if (text !== null && !isPlainPath(text))
    toml.problem(path, `must be an absolute path without "." and ".." and without "/" at its end, not ${quote(text)}`)
  return text ?? ''
}

const readMode = (toml: TomlReader, path: TomlPath, value: unknown): number => {
  const text = toml.text(path, value)
  if (text === null) return DEFAULT_MODE
  if (/^0[0-7]{3}$/.test(text)) return Number.parseInt(text, 8)
  toml.problem(path, `must be four octal digits that begin with 0, such as "0644", not ${quote(text)}`)
  return DEFAULT_MODE
}

/** An ACL entry, as far as files matter. */
interface FileEntry {
  readonly files: readonly FileGrant[]
}

/** A table, and the entry that holds it. */
export interface MatchedGrant<Entry extends FileEntry> {
  readonly entry: Entry
  readonly grant: FileGrant
}

/** True for the root itself and everything below it. */
export const isBelow = (root: string, path: string): boolean => path === root || path.startsWith(root === '/' ? '/' : `${root}/`)

const allows = (grant: FileGrant, command: FileCommand): boolean => {
  if (!changesFiles(command)) return grant.read
  return grant.write && (command.op !== 'mkdir' || grant.create_dirs)
}

/** The first table, in the order of the file, that allows the command. */
export const findGrant = <Entry extends FileEntry>(entries: readonly Entry[], command: FileCommand): MatchedGrant<Entry> | null => {
  for (const entry of entries)
    for (const grant of entry.files) if (isBelow(grant.root, command.path) && allows(grant, command)) return { entry, grant }
  return null
}

/** Why no table allows a command, for the operator. */
export const describeNoGrant = (entries: readonly FileEntry[], command: FileCommand): string => {
  const grants = entries.flatMap(({ files }) => files)
  if (grants.length === 0) return 'no entry of this pair has a [[exec.allow.files]] table'
  const around = grants.find(({ root }) => isBelow(root, command.path))
  if (around === undefined) return `${quote(command.path)} is below none of the roots ${grants.map(({ root }) => quote(root)).join(', ')}`
  const right = !changesFiles(command) ? 'read' : around.write ? 'create_dirs' : 'write'
  return `line ${around.line} (root ${quote(around.root)}) does not say ${right} = true`
}
