import { createHash } from 'node:crypto'
import { isAbsolute } from 'node:path'
import { TomlError, parse } from 'smol-toml'
import { AppError, type ErrorCode, attempt, isMissing } from './errors.ts'
import { type BoundedRead, readBounded, unreadable } from './files.ts'
import { didYouMean } from './format.ts'
import { isVisible } from './visible-text.ts'

/** The path of a value, with keys of tables and indices of arrays (also of arrays of tables). */
export type KeyPath = readonly (string | number)[]

/** Bare keys of TOML 1.0. All others are quoted. */
const BARE_KEY = /[A-Za-z0-9_-]+/y
const SPACE = /[ \t]*/y
const BLANK = /(?:[ \t\r\n]|#[^\n]*)*/y
const STRING = /"""(?:[^\\]|\\[\s\S])*?"{3,5}|'''[\s\S]*?'{3,5}|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'/y
const SCALAR = /[^,\]}\n#]*/y

const keyOf = (path: KeyPath): string => JSON.stringify(path)

/**
 * Finds the line on which each key, table and array element begins, in TOML that a parser has accepted. It does not validate, and stops
 * early at invalid TOML. A library with positions would be a second parser of files that decide which commands run.
 */
class TomlLines {
  readonly lines = new Map<string, number>()
  readonly #text: string
  #at = 0
  #countedTo = 0
  #line = 1
  /** The number of elements read so far of each array of tables, by path. */
  readonly #elements = new Map<string, number>()

  constructor(text: string) {
    this.#text = text
  }

  read(): this {
    let table: KeyPath = []
    for (this.#match(BLANK); this.#at < this.#text.length; this.#match(BLANK)) {
      const before = this.#at
      if (this.#take('[[')) table = this.#header(true)
      else if (this.#take('[')) table = this.#header(false)
      else this.#pair(table)
      if (this.#at === before) break
    }
    return this
  }

  #header(ofArray: boolean): KeyPath {
    const keys = this.#dottedKey()
    let path: KeyPath = []
    keys.forEach((key, i) => {
      path = [...path, key]
      const name = keyOf(path)
      if (ofArray && i === keys.length - 1) {
        this.#record(path)
        this.#elements.set(name, (this.#elements.get(name) ?? 0) + 1)
      }
      const seen = this.#elements.get(name)
      if (seen !== undefined) path = [...path, seen - 1]
    })
    if (!this.#take(ofArray ? ']]' : ']')) this.#at = this.#text.length
    return this.#record(path)
  }

  #pair(table: KeyPath): void {
    const path = [...table]
    for (const key of this.#dottedKey()) {
      path.push(key)
      this.#record(path)
    }
    this.#match(SPACE)
    if (!this.#take('=')) return
    this.#match(SPACE)
    this.#value(path)
  }

  #value(path: KeyPath): void {
    if (this.#take('[')) this.#list(']', (index) => this.#value(this.#record([...path, index])))
    else if (this.#take('{')) this.#list('}', () => this.#pair(path))
    else if (this.#match(STRING) === '') this.#match(SCALAR)
  }

  #list(close: string, item: (index: number) => void): void {
    for (let index = 0; ; index++) {
      this.#match(BLANK)
      if (this.#at >= this.#text.length || this.#take(close)) return
      const before = this.#at
      item(index)
      this.#match(BLANK)
      if (!this.#take(',') && this.#at === before) return
    }
  }

  #dottedKey(): string[] {
    const keys: string[] = []
    do {
      this.#match(SPACE)
      const quoted = this.#match(STRING)
      keys.push(quoted === '' ? this.#match(BARE_KEY) : unquote(quoted))
      this.#match(SPACE)
    } while (this.#take('.'))
    return keys
  }

  #record(path: KeyPath): KeyPath {
    for (; this.#countedTo < this.#at; this.#countedTo++) if (this.#text[this.#countedTo] === '\n') this.#line++
    const name = keyOf(path)
    if (!this.lines.has(name)) this.lines.set(name, this.#line)
    return path
  }

  #take(token: string): boolean {
    if (!this.#text.startsWith(token, this.#at)) return false
    this.#at += token.length
    return true
  }

  #match(pattern: RegExp): string {
    pattern.lastIndex = this.#at
    const found = pattern.exec(this.#text)?.[0] ?? ''
    this.#at += found.length
    return found
  }
}

const unquote = (quoted: string): string => {
  const value = quoted.startsWith("'") ? null : attempt(() => String(JSON.parse(quoted)))
  return value ?? quoted.slice(1, -1)
}

/**
 * Returns a function from a path to the line, from 1, of its value. For a missing key it is the line of the innermost table or array
 * around it. The text is read once, at the first call.
 */
export const linesOf = (text: string): ((path: KeyPath) => number) => {
  let lines: ReadonlyMap<string, number> | null = null
  return (path) => {
    lines ??= new TomlLines(text).read().lines
    for (let length = path.length; length > 0; length--) {
      const line = lines.get(keyOf(path.slice(0, length)))
      if (line !== undefined) return line
    }
    return 1
  }
}

/** A TOML file with valid syntax. Its reader checks the meaning. */
export interface TomlDocument {
  readonly path: string
  readonly value: Record<string, unknown>
  /** Digest of the file's bytes, in hex. */
  readonly sha256: string
  /** The line, from 1, of a key, or of the nearest part around it. */
  lineOf(keyPath: KeyPath): number
}

export interface TomlOptions {
  /** Return integers as bigint, for a reader that tells `1` from `1.0` or needs 64 bits. */
  readonly bigints?: boolean
}

export interface TomlFileOptions extends TomlOptions, Pick<BoundedRead, 'pipes'> {}

/** Size limit in bytes. An ACL of a hundred thousand commands is smaller. */
const MAX_TOML_BYTES = 16 * 1024 * 1024

const sha256Of = (content: string | Uint8Array): string => createHash('sha256').update(content).digest('hex')

/** Parses TOML. A syntax error becomes `code`, with `path:line:column` before its text. */
export const parseToml = (text: string, path: string, code: ErrorCode, options: TomlOptions = {}): TomlDocument => {
  try {
    const value = parse(text, { integersAsBigInt: options.bigints ?? false })
    return { path, value, sha256: sha256Of(text), lineOf: linesOf(text) }
  } catch (error) {
    if (!(error instanceof TomlError)) throw error
    const { line, column } = error
    const [reason] = error.message.replace(/^Invalid TOML document: /, '').split('\n')
    const [bare] = /^[A-Za-z][^\s,\]}#]*/.exec(text.split('\n')[line - 1]?.slice(column - 1) ?? '') ?? []
    const hint =
      reason === 'invalid value' && bare !== undefined
        ? ` ${bare}: use true, false or a number, or put a text in quotes (${JSON.stringify(bare)})`
        : ''
    throw new AppError(code, `${path}:${line}:${column}: ${reason}${hint}`, { cause: error, data: { file: path, line, column } })
  }
}

/** Reads a TOML file with its bytes. A missing file is `not_found`, and any other problem is `code`. */
export const readToml = async (
  path: string,
  code: ErrorCode,
  { pipes = false, ...options }: TomlFileOptions = {},
): Promise<TomlDocument & { readonly bytes: Buffer }> => {
  let bytes: Buffer
  try {
    bytes = await readBounded(path, { max: MAX_TOML_BYTES, pipes })
  } catch (error) {
    throw unreadable(isMissing(error) ? 'not_found' : code, path, error)
  }
  let text: string
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: false }).decode(bytes)
  } catch (error) {
    throw new AppError(code, `${path}: not valid UTF-8`, { cause: error, data: { file: path } })
  }
  return { ...parseToml(text, path, code, options), sha256: sha256Of(bytes), bytes }
}

/** A semantic error in a TOML file, in the form `file:line: key: reason` that editors understand. */
export const tomlError = (code: ErrorCode, document: TomlDocument, keyPath: KeyPath, reason: string): AppError => {
  const line = document.lineOf(keyPath)
  const key = keyPath.reduce<string>((text, part) => (typeof part === 'number' ? `${text}[${part}]` : text ? `${text}.${part}` : part), '')
  return new AppError(code, `${document.path}:${line}: ${key ? `${key}: ` : ''}${reason}`, { data: { file: document.path, line, key } })
}

export type TomlPath = readonly (string | number)[]
export type TomlTable = Readonly<Record<string, unknown>>

const isTable = (value: unknown): value is TomlTable =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date)

/** Freezes a value and everything in it. A Set can still be added to. */
export const deepFreeze = <T>(value: T): T => {
  if (typeof value === 'object' && value !== null) for (const part of Object.values(Object.freeze(value))) deepFreeze(part)
  return value
}

/** A value in the form that its author would recognise. */
export const nameOf = (value: unknown): string => {
  if (typeof value === 'string') return JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value)
  if (Array.isArray(value)) return 'a list'
  if (value instanceof Date) return 'a date'
  // A float such as 4.0 would print as the integer that it is not.
  if (typeof value === 'number') return Number.isInteger(value) ? `${value}.0` : String(value)
  return isTable(value) ? 'a table' : String(value)
}

/**
 * Reads the values of a TOML file strictly. Unknown keys and wrong types are problems with file, line and key, and one pass finds all of
 * them. Null means absent or wrong. The document must have bigints.
 */
export class TomlReader {
  readonly document: TomlDocument
  readonly problems: string[] = []
  readonly warnings: string[] = []
  readonly #code: ErrorCode

  constructor(document: TomlDocument, code: ErrorCode) {
    this.document = document
    this.#code = code
  }

  boolean(path: TomlPath, value: unknown): boolean | null {
    if (value === undefined || typeof value === 'boolean') return value ?? null
    this.problem(path, `must be true or false, not ${nameOf(value)}`)
    return null
  }

  wholeNumber(path: TomlPath, value: unknown, min: number, max: number): number | null {
    if (value === undefined) return null
    if (typeof value === 'bigint' && value >= BigInt(min) && value <= BigInt(max)) return Number(value)
    this.problem(path, `must be a whole number from ${min} to ${max}, not ${nameOf(value)}`)
    return null
  }

  text(path: TomlPath, value: unknown): string | null {
    if (value === undefined) return null
    if (typeof value !== 'string') this.problem(path, `must be a string, not ${nameOf(value)}`)
    else if (value === '') this.problem(path, 'is empty')
    else if (!isVisible(value)) this.problem(path, 'contains a control or invisible character')
    else return value
    return null
  }

  absolutePath(path: TomlPath, value: unknown): string | null {
    const text = this.text(path, value)
    if (text === null || isAbsolute(text)) return text
    this.problem(path, `${JSON.stringify(text)} must be an absolute path`)
    return null
  }

  /** Any strings, or null if the value is not a list of them. */
  strings(path: TomlPath, value: unknown): string[] | null {
    if (value === undefined) return null
    if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return value
    const list: readonly unknown[] | null = Array.isArray(value) ? value : null
    const given = list === null ? nameOf(value) : `a list with ${nameOf(list.find((item) => typeof item !== 'string'))}`
    this.problem(path, `must be a list of strings, not ${given}`)
    return null
  }

  /** The unchecked tables of `[[a.b]]`. */
  tables(path: TomlPath, value: unknown): unknown[] {
    if (value === undefined) return []
    if (Array.isArray(value)) return value
    this.problem(path, `must be written [[${path.filter((part) => typeof part === 'string').join('.')}]]`)
    return []
  }

  table(path: TomlPath, value: unknown, known: readonly string[]): TomlTable | null {
    if (isTable(value)) {
      this.knownKeys(path, value, known)
      return value
    }
    this.problem(path, `must be a table, not ${nameOf(value)}`)
    return null
  }

  knownKeys(path: TomlPath, table: TomlTable, known: readonly string[]): void {
    for (const key of Object.keys(table))
      if (!known.includes(key)) this.problem([...path, key], `unknown key${didYouMean(key, known) || `; known keys: ${known.join(', ')}`}`)
  }

  problem(path: TomlPath, reason: string): void {
    this.problems.push(tomlError(this.#code, this.document, path, reason).message)
  }

  warning(path: TomlPath, reason: string): void {
    this.warnings.push(tomlError(this.#code, this.document, path, reason).message)
  }
}
