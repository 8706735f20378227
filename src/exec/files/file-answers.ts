import { AppError, attempt } from '../../base/errors.ts'
import { FILE_ENTRY, FILE_LIST_END, type FileEntryJson, type FileListJson, isPathBelow } from '../../protocol/api/files.ts'
import { MAX_FILE_CHUNK_BYTES, MAX_FILE_LIST, MAX_FILE_PATH_BYTES } from '../../protocol/limits/files.ts'
import { type FieldTable, type Fields, type Sent, isTable, problemOf } from '../../protocol/json-table.ts'
import { LineSplitter } from '../../protocol/lines.ts'

/** Bytes of a line of `@list`: a path with each byte escaped, and the fields around it. */
const MAX_ENTRY_LINE = 6 * MAX_FILE_PATH_BYTES + 1024
/** Bytes of an answer in one line. */
const MAX_ANSWER = 16 * 1024

const malformed = (what: string): AppError => new AppError('file_error', `the answer of the agent is not valid: ${what}`)

const tableOf = (line: string): Fields => {
  const value = attempt(() => JSON.parse(line) as unknown)
  if (!isTable(value)) throw malformed('it is not JSON')
  return value
}

/** The stated fields, without others. Throws `file_error` if one is missing or invalid. */
const fieldsOf = <S extends FieldTable>(value: Fields, stated: S): Sent<S> => {
  const problem = problemOf(value, stated)
  if (problem !== null) throw malformed(problem)
  return Object.fromEntries(Object.keys(stated).map((name) => [name, value[name]])) as Sent<S>
}

/** The output of a command that prints one object. */
export class ObjectOutput {
  readonly #parts: Uint8Array[] = []
  #length = 0

  push(data: Uint8Array): void {
    this.#length += data.length
    if (this.#length > MAX_ANSWER) throw malformed('it is too long')
    this.#parts.push(data)
  }

  /** Throws `file_error` for other output. */
  result<S extends FieldTable>(stated: S): Sent<S> {
    return fieldsOf(tableOf(Buffer.concat(this.#parts).toString('utf8')), stated)
  }
}

/** The output of `@list`, read line by line as it comes. */
export class ListOutput {
  readonly #lines = new LineSplitter({ max: MAX_ENTRY_LINE })
  readonly #entries: FileEntryJson[] = []
  #leftOut: number | null = null
  #bytes = 0

  push(data: Uint8Array): void {
    this.#bytes += data.length
    if (this.#bytes > MAX_FILE_CHUNK_BYTES) throw malformed('it is too long')
    for (const line of this.#lines.push(data)) {
      if (line === 'too_long') throw malformed('a line is too long')
      this.#add(tableOf(line.toString('utf8')))
    }
  }

  /** Throws `file_error` if the last line is missing. */
  result(): FileListJson {
    if (this.#leftOut === null || this.#lines.rest() !== null) throw malformed('its end is missing')
    return { entries: this.#entries, left_out: this.#leftOut }
  }

  #add(value: Fields): void {
    if (this.#leftOut !== null || this.#entries.length > MAX_FILE_LIST) throw malformed('it has too many lines')
    if (!Object.hasOwn(value, 'path')) {
      this.#leftOut = fieldsOf(value, FILE_LIST_END).left_out
      return
    }
    const entry = fieldsOf(value, FILE_ENTRY)
    // A client creates files with these names.
    if (!isPathBelow(entry.path) || Buffer.byteLength(entry.path) > MAX_FILE_PATH_BYTES)
      throw malformed('a path leads out of the directory')
    this.#entries.push(entry)
  }
}
