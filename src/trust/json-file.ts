import { AppError, type ErrorCode, errorText, isAppError } from '../base/errors.ts'
import { readPrivateFile } from '../base/file-permissions.ts'
import { versionProblem, writeFileAtomic } from '../base/files.ts'

/** Path of a value in a file, and a function that refuses it. */
export interface JsonPath {
  readonly file: string
  readonly code: ErrorCode
  /** `contacts[2].trust`, or empty for the whole file. */
  readonly path: string
}

export const within = (place: JsonPath, key: string | number): JsonPath => ({
  ...place,
  path: typeof key === 'number' ? `${place.path}[${key}]` : place.path ? `${place.path}.${key}` : key,
})

export const refuse = ({ file, code, path }: JsonPath, reason: string, cause?: unknown): never => {
  throw new AppError(code, `${file}: ${path ? `${path}: ` : ''}${reason}`, { cause, data: { file, key: path } })
}

/** The value of a private JSON file (0600), or undefined if it does not exist. A syntax error states `file:line:column` or a quotation. */
export const readJsonFile = async (file: string, code: ErrorCode): Promise<unknown> => {
  let bytes: Uint8Array
  try {
    bytes = await readPrivateFile(file)
  } catch (error) {
    if (isAppError(error, 'not_found')) return undefined
    throw error
  }
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(bytes))
  } catch (error) {
    const [, line, column] = /\(line (\d+) column (\d+)\)/.exec(errorText(error)) ?? []
    const where = line && column ? `:${line}:${column}` : ''
    const reason = errorText(error)
      .replace(/ in JSON at position .*$/s, '')
      .replaceAll(/\s+/g, ' ')
    throw new AppError(code, `${file}${where}: ${reason}`, {
      cause: error,
      data: { file, line: Number(line ?? 0), column: Number(column ?? 0) },
    })
  }
}

/** Replaces the file atomically, in a readable layout. */
export const writeJsonFile = (file: string, value: unknown): Promise<void> => writeFileAtomic(file, `${JSON.stringify(value, null, 2)}\n`)

/** The value as an object with exactly these keys. */
export const objectOf = <const K extends string>(value: unknown, keys: readonly K[], place: JsonPath): Record<K, unknown> => {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return refuse(place, 'expected an object')
  for (const key of Object.keys(value)) if (!keys.some((known) => known === key)) refuse(within(place, key), 'unknown key')
  for (const key of keys) if (!Object.hasOwn(value, key)) refuse(within(place, key), 'missing')
  return value as Record<K, unknown>
}

/** As `objectOf`, for a whole file with a version. */
export const fileOf = <const K extends string>(
  value: unknown,
  version: number,
  keys: readonly K[],
  place: JsonPath,
): Record<K, unknown> => {
  const problem = typeof value === 'object' && value !== null && 'version' in value ? versionProblem(value.version, version) : null
  if (problem !== null) return refuse(within(place, 'version'), problem)
  return objectOf(value, ['version', ...keys], place)
}

export const listOf = <T>(value: unknown, place: JsonPath, item: (value: unknown, place: JsonPath) => T): T[] => {
  if (!Array.isArray(value)) return refuse(place, 'expected a list')
  return value.map((one, index) => item(one, within(place, index)))
}

export const textOf = (value: unknown, place: JsonPath): string => (typeof value === 'string' ? value : refuse(place, 'expected a text'))
