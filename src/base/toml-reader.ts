import { isAbsolute } from 'node:path'
import type { ErrorCode } from './errors.ts'
import { type TomlDocument, tomlError } from './toml-file.ts'
import { isVisible } from './visible-text.ts'

export type TomlPath = readonly (string | number)[]
export type TomlTable = Readonly<Record<string, unknown>>

const isTable = (value: unknown): value is TomlTable =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !(value instanceof Date)

/** Freezes a value and all that it is made of; a set among that can still be added to. */
export const deepFreeze = <T>(value: T): T => {
  if (typeof value === 'object' && value !== null) for (const part of Object.values(Object.freeze(value))) deepFreeze(part)
  return value
}

/** A value as the operator would recognise it. */
export const nameOf = (value: unknown): string => {
  if (typeof value === 'string') return JSON.stringify(value.length > 80 ? `${value.slice(0, 80)}…` : value)
  if (Array.isArray(value)) return 'a list'
  if (value instanceof Date) return 'a date'
  // A float such as 4.0 would print as the integer that it is not.
  if (typeof value === 'number') return Number.isInteger(value) ? `${value}.0` : String(value)
  return isTable(value) ? 'a table' : String(value)
}

/**
 * Reads the values of one TOML file strictly: unknown keys and wrong types are problems, each with its file, line
 * and key, and all of them are found in one pass. Null = absent or wrong. The document must carry bigints.
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

  /** Of any strings; null where it is no list of them. */
  strings(path: TomlPath, value: unknown): string[] | null {
    if (value === undefined) return null
    if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return value
    const list: readonly unknown[] | null = Array.isArray(value) ? value : null
    const given = list === null ? nameOf(value) : `a list with ${nameOf(list.find((item) => typeof item !== 'string'))}`
    this.problem(path, `must be a list of strings, not ${given}`)
    return null
  }

  /** The tables of `[[a.b]]`, not looked at yet. */
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
      if (!known.includes(key)) this.problem([...path, key], `unknown key; known here: ${known.join(', ')}`)
  }

  problem(path: TomlPath, reason: string): void {
    this.problems.push(tomlError(this.#code, this.document, path, reason).message)
  }

  warning(path: TomlPath, reason: string): void {
    this.warnings.push(tomlError(this.#code, this.document, path, reason).message)
  }
}
